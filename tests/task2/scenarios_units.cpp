// Step 2.5: which unit owns which parameter. Options: units (paths of modules, "" is the root),
// ignored (paths of parameters), and the model's (models.h).
#include "task2/models.h"
#include "task2/scenarios.h"
#include "task2_flat_parameter/flat_parameter.h"

#include <map>
#include <set>

namespace fsdp::graded {

void units(Recorder& recorder) {
  const auto tree = model_of(recorder.asked());
  nn::Module* const model = tree->find(recorder.option("root", std::string()));
  const auto ignored_paths = recorder.option("ignored", std::set<std::string>{});
  std::map<const void*, std::string> path_of;  // a tied parameter has several; the first counts
  std::vector<const void*> ignored;
  for (const nn::NamedParameter& each : model->named_parameters()) {
    path_of[each.variable.id()] = each.path;
  }
  for (const nn::NamedParameter& each : model->named_parameters_with_ties()) {
    if (ignored_paths.count(each.path) != 0) ignored.push_back(each.variable.id());
  }
  std::vector<nn::Module*> modules;
  for (const auto& path : recorder.option("units", std::vector<std::string>{})) {
    modules.push_back(tree->find(path));
  }
  Json lists = Json::array();
  for (const auto& list : parameters_of_units(*model, modules, ignored)) {
    Json paths = Json::array();
    for (const nn::NamedParameter& each : list) paths.push_back(path_of.at(each.variable.id()));
    lists.push_back(paths);
  }
  recorder.note("lists", lists);
  if (modules.empty()) return;
  modules.push_back(modules.front());
  recorder.attempt("twice", [&] { (void)parameters_of_units(*model, modules, ignored); });
}

}  // namespace fsdp::graded
