// Step 2.5: which unit owns which parameter.
#include "graded/expect.h"
#include "task2/cases.h"
#include "task2/models.h"

#include <algorithm>
#include <map>
#include <set>

namespace fsdp::graded {
namespace {

using Paths = std::vector<std::string>;

/// Whether the module `outer` is `inner` or around it. A name may contain dots, a path too; so the
/// tree is asked.
bool is_around(const nn::Module& outer, const nn::Module* inner) {
  while (inner != nullptr && inner != &outer) inner = inner->parent();
  return inner != nullptr;
}

int depth_of(const nn::Module* module) {
  int depth = 0;
  for (; module != nullptr; module = module->parent()) ++depth;
  return depth;
}

/// A parameter, the modules that use it, and the number of the unit it belongs to.
struct Owned {
  std::string path;
  bool requires_grad = true;
  Paths paths;  // one for each of
  std::vector<nn::Module*> users;
  std::size_t unit = 0;
};

/// By definition: of all units around every user, the deepest.
std::vector<Owned> owners(nn::Module& root, const std::vector<nn::Module*>& units) {
  std::vector<Owned> all;
  for (const nn::NamedParameter& each : root.named_parameters()) {
    Owned owned{each.path, each.variable.requires_grad(), {}, {}, 0};
    for (const nn::NamedParameter& use : root.named_parameters_with_ties()) {
      if (use.variable.id() != each.variable.id()) continue;
      owned.users.push_back(use.module);
      owned.paths.push_back(use.path);
    }
    int deepest = 0;
    for (std::size_t i = 0; i < units.size(); ++i) {
      const bool around_all =
          std::all_of(owned.users.begin(), owned.users.end(),
                      [&](const nn::Module* user) { return is_around(*units[i], user); });
      if (around_all && depth_of(units[i]) > deepest) {
        owned.unit = i;
        deepest = depth_of(units[i]);
      }
    }
    all.push_back(owned);
  }
  return all;
}

std::vector<std::size_t> lists_with(const std::vector<Paths>& lists, const std::string& path) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < lists.size(); ++i) {
    found.insert(found.end(),
                 static_cast<std::size_t>(std::count(lists[i].begin(), lists[i].end(), path)), i);
  }
  return found;
}

/// "layers.0.bias: list 0, list 3"
std::string line_of(const std::string& path, const std::vector<std::size_t>& lists) {
  std::string text = path + ":";
  for (std::size_t i = 0; i < lists.size(); ++i) {
    text += fmt::format("{} list {}", i == 0 ? "" : ",", lists[i]);
  }
  return lists.empty() ? text + " none" : text;
}

}  // namespace

void judge_units(const Setup& setup) {
  const Observations& seen = run("units", setup);
  const Case& asked = seen.asked();
  const auto tree = model_of(asked);
  nn::Module* const model = tree->find(asked.options.value("root", std::string()));
  const auto paths = asked.options.value("units", Paths{});
  const auto ignored = asked.options.value("ignored", std::set<std::string>{});
  std::vector<nn::Module*> units;
  for (const std::string& path : paths) units.push_back(tree->find(path));
  if (std::find(units.begin(), units.end(), model) == units.end()) units.push_back(model);
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    const auto lists = seen.at(rank, "lists").get<std::vector<Paths>>();
    Check count("2.5",
                "there is one list per unit, in the given order, with the root's last unless the "
                "root was listed",
                seen);
    const bool is_empty_left_out =
        std::none_of(lists.begin(), lists.end(), [](const Paths& each) { return each.empty(); });
    count.at(rank).equal(
        "the number of lists", static_cast<std::int64_t>(lists.size()),
        static_cast<std::int64_t>(units.size()),
        {{lists.size() > units.size(), "You added the root although it was listed"},
         {is_empty_left_out,
          "You left out the list of a unit that owns no parameter: its list is "
          "empty, but it is there"}});
    std::vector<Paths> right_lists(units.size());
    Paths observed, expected;
    bool twice = false, tied_twice = false, tied_wrong = false, tied_high = false;
    bool plain_wrong = false, some_missing = false, ignored_listed = false;
    bool trainable_missing = false, listed_twice_ignored = false;
    for (const Owned& each : owners(*model, units)) {
      const bool is_ignored = ignored.count(each.path) != 0;
      const auto found = lists_with(lists, each.path);
      const auto right = is_ignored ? std::vector<std::size_t>{} : std::vector{each.unit};
      if (!is_ignored) right_lists[each.unit].push_back(each.path);
      observed.push_back(line_of(each.path, found));
      expected.push_back(line_of(each.path, right));
      if (found == right) continue;
      const bool tied = each.users.size() > 1;
      twice |= !tied && found.size() > 1;
      tied_twice |= tied && found.size() > 1;
      const bool other = found.size() == 1 && found[0] < units.size() && !is_ignored;
      const bool around_all =
          other && std::all_of(each.users.begin(), each.users.end(), [&](const nn::Module* user) {
            return is_around(*units[found[0]], user);
          });
      tied_high |= tied && other && around_all;
      tied_wrong |= tied && other && !around_all;
      plain_wrong |= !tied && found.size() == 1 && !is_ignored;
      some_missing |= found.empty();
      trainable_missing |= found.empty() && each.requires_grad;
      ignored_listed |= is_ignored;
      const auto is_listed = [&](const std::string& path) { return ignored.count(path) != 0; };
      listed_twice_ignored |=
          is_ignored && std::count_if(each.paths.begin(), each.paths.end(), is_listed) > 1;
    }
    int displaced = 0;  // of those lists that are not empty
    for (std::size_t i = 0; i < lists.size() && i < right_lists.size(); ++i) {
      displaced += lists[i] != right_lists[i] && !right_lists[i].empty() ? 1 : 0;
    }
    Check check("2.5",
                "a parameter that is not ignored is in exactly one list: that of the lowest unit "
                "around all modules that registered it",
                seen);
    check.at(rank).equal(
        "the lists of each parameter", observed, expected,
        {{plain_wrong && displaced > 1 &&
              std::is_permutation(lists.begin(), lists.end(), right_lists.begin(),
                                  right_lists.end()),
          "Every list is right, but not its position: the lists follow the order of the units, and "
          "the root's is last only if the root was not listed"},
         {listed_twice_ignored,
          "You listed an ignored parameter: its id is in `ignored` once for each of its paths"},
         {ignored_listed, "You listed an ignored parameter: it stays whole on every rank"},
         {twice, "You listed a parameter twice: a unit takes only what no unit inside it takes"},
         {tied_twice,
          "You put a tied parameter into two lists: it is one parameter with one owner"},
         {some_missing && !trainable_missing,
          "You left out frozen parameters: they have an owner, too"},
         {some_missing,
          "You left out a parameter: without an owner it would be neither sharded nor trained"},
         {tied_wrong && !plain_wrong,
          "You gave a tied parameter to a unit that is not around all its users: it is freed there "
          "while another user still needs it"},
         {tied_high && !plain_wrong,
          "You gave a tied parameter to a unit too far up: there is a lower unit around all its "
          "users"},
         {plain_wrong, "You did not give a parameter to the lowest unit around its module"}});
    if (paths.empty()) continue;
    Check once("2.5", "a module can be a unit only once", seen);
    const std::string& twice_listed = paths.front();
    if (units.front() == model) {  // its path may be empty
      once.at(rank).refused("listing the root twice", seen.at(rank, "twice"), "Error", {});
    } else {
      once.at(rank).refused("listing " + twice_listed + " twice", seen.at(rank, "twice"), "Error",
                            {twice_listed});
    }
  }
}

}  // namespace fsdp::graded
