#include "base/todo.h"
#include "comm/world.h"
#include "graded/decorated.h"
#include "graded/device.h"
#include "graded/precision.h"
#include "support/numbers.h"
#include "support/reshard.h"
#include "task7/session.h"

#include <algorithm>
#include <atomic>
#include <utility>

namespace fsdp::graded {
namespace {

class Watched : public Decorated {
 public:
  Watched(std::shared_ptr<Backend> inner, Watch watch)
      : Decorated(std::move(inner)), watch_(std::move(watch)) {}
  std::unique_ptr<Work::Pending> start(const Collective& call) override {
    if (call.label.phase == Phase::checkpoint) watch_(rank());
    return inner().start(call);
  }

 private:
  std::shared_ptr<Backend> decorate(std::shared_ptr<Backend> part) override { return part; }
  Watch watch_;
};

}  // namespace

Session::Session(const Json& options, std::shared_ptr<ProcessGroup> group)
    : options_(options), group_(std::move(group)) {
  take_scratch();  // its arena is no part of any measurement
  const auto build = [&] { return make_model(options_); };
  root_ = options_.value("meta", false) ? deferred_.build(build) : build();
  freeze(*root_, options_);
}

FullyShardOptions Session::sharding() {
  FullyShardOptions sharding;
  if (options_.contains("wrap")) {
    sharding.wrap = [this](nn::Module& root) {
      std::vector<nn::Module*> modules;
      for (const std::string& path : options_.at("wrap").get<Names>()) {
        modules.push_back(root.find(path));
      }
      return modules;
    };
  }
  sharding.reshard_after_forward = testing::reshard_of(options_.value("group", 0));
  sharding.prefetch_depth = options_.value("depth", 1);
  sharding.in_flight_limit = options_.value("limit", 0);
  sharding.ignored = options_.value("ignored", Names{});
  sharding.mixed_precision = precision_of(options_);
  if (options_.contains("no_decay")) {
    sharding.decays = [this](const nn::NamedParameter& each) {
      return decays(options_, each.path);
    };
  }
  if (options_.value("meta", false)) sharding.deferred = &deferred_;
  return sharding;
}

void Session::shard() { model_ = fully_shard(*root_, group_, sharding()); }
void Session::begin_sharding() {
  model_ = StepProbe::unbuilt(*root_, group_, sharding());
  const auto what = options_.value("offload", std::string());
  StepProbe::set_offload(*model_, {.params = !what.empty(), .grads = what == "gradients"});
}

void Session::attach_optimizer() {
  model_->attach_optimizer([this] { return make_optimizer(options_); });
}

optim::StepPlan Session::plan() const {
  const int micro_steps = options_.value("micro_batches", group_->size()) / group_->size();
  const int all_or_one = options_.value("no_sync", false) ? micro_steps : 1;
  return {micro_steps, options_.value("per_reduction", all_or_one),
          options_.value("loss_scale", 1.0)};
}

void Session::abandon_forward(std::uint64_t seed, int step) {
  const Variable loss = loss_of(*root_, options_, seed, step, 0);
}

Json Session::evaluate(std::uint64_t seed, int step) {
  const NoGradScope no_tape;
  const auto& units = model_->units();
  Json noted;
  noted["sharded"] = std::all_of(units.begin(), units.end(), [](const auto& unit) {
    return unit->state() == ShardedUnit::State::sharded;
  });
  for (const char* which : {"first", "second"}) {
    noted[which] = loss_of(*root_, options_, seed, step, 0).data().item();
  }
  return noted;
}

void Session::train(std::uint64_t seed, int first, int count,
                    const std::function<void(int step)>& after) {
  const optim::StepPlan plan = this->plan();
  const int micro_steps = plan.micro_steps;
  const bool abandons = options_.value("abandons", false);
  const auto without = options_.value("without_model", std::vector<int>{});
  const double clip = options_.value("clip", 0.0);
  for (int step = first; step < first + count; ++step) {
    if (abandons) abandon_forward(seed, step);
    model_->begin_step(plan);
    for (int m = 0; m < micro_steps; ++m) {
      const auto j = static_cast<int>(plan.micro_batch(m, group_->rank(), group_->size()));
      const bool is_without = std::find(without.begin(), without.end(), m) != without.end();
      const Variable loss =
          is_without ? loss_without_model() : loss_of(*root_, options_, seed, step, j);
      losses.push_back({{"step", step}, {"j", j}, {"loss", loss.data().item()}});
      loss.backward(plan.loss_scale);
      model_->end_micro_step();
    }
    model_->finish_gradients();
    if (clip > 0) norms.push_back(model_->clip_grad_norm(clip));
    if (abandons) abandon_forward(seed, step);
    model_->step(rate_of(step));
    if (options_.value("evaluates", false)) evaluations.push_back(evaluate(seed, step));
    if (after) after(step);
    model_->zero_grad();
  }
}

Json Session::units_json() {
  Json units = Json::array();
  for (const auto& unit : model_->units()) {
    Json flats = Json::array();
    Names formats, offloads;
    for (const auto& flat : unit->flat_parameters()) {
      Names paths;
      for (const nn::NamedParameter& each : flat->parameters()) paths.push_back(each.path);
      flats.push_back({{"paths", paths},
                       {"trainable", flat->requires_grad()},
                       {"decays", flat->decay},
                       {"dtype", name_of(flat->shard().dtype())}});
      offloads.push_back(!flat->offload().params ? ""
                         : flat->offload().grads ? "gradients"
                                                 : "parameters");
      formats.push_back(fmt::format("{}, read as {}, gradients summed in {}",
                                    name_of(flat->shard().dtype()), name_of(flat->full().dtype()),
                                    name_of(flat->reduce_dtype())));
    }
    units.push_back({{"name", unit->name()},
                     {"kept", unit->options().keep_until_backward},
                     {"group", testing::number_of(unit->options().reshard_after_forward)},
                     {"formats", formats},
                     {"offloads", offloads},
                     {"flats", flats}});
  }
  return units;
}

Json Session::shard_slices() {
  std::vector<io::StateSlice> slices;
  for (const auto& unit : model_->units()) {
    for (const auto& flat : unit->flat_parameters()) {
      for (const ShardPiece& piece : flat->pieces_of(flat->rank())) {
        const Span& span = flat->spans()[piece.span];
        slices.push_back({"param/" + span.path, span.shape, piece.param_begin,
                          flat->shard().narrow(0, piece.shard_begin, piece.numel)});
      }
    }
  }
  return to_json(slices);
}

Json Session::replicated_json() {
  std::vector<io::StateSlice> slices;
  for (const nn::NamedParameter& each : StepProbe::replicated(*model_)) {
    const Tensor& data = StepProbe::master(*model_, each);
    slices.push_back({"param/" + each.path, data.shape(), 0, data.view({data.numel()})});
  }
  return to_json(slices);
}

Json Session::all_slices() {
  Json slices = shard_slices();
  for (Json& each : replicated_json()) slices.push_back(std::move(each));
  return slices;
}

Json Session::copies_json() {
  std::vector<io::StateSlice> slices;
  for (const nn::NamedParameter& each : StepProbe::replicated(*model_)) {
    const Tensor& data = each.variable.data();
    slices.push_back({"param/" + each.path, data.shape(), 0, data.view({data.numel()})});
  }
  return to_json(slices);
}

Json Session::gradients_left() {
  int count = 0;
  bool zero = true;
  for (const auto& unit : model_->units()) {
    for (const auto& flat : unit->flat_parameters()) {
      const Tensor gradient = flat->shard_grad();
      if (!gradient.is_defined()) continue;
      ++count;
      if (!gradient.storage()->is_allocated()) continue;
      for (const float each : testing::floats_of(gradient)) zero = zero && each == 0;
    }
  }
  return {{"count", count}, {"zero", zero}};
}

Json bits_of(const Tensor& tensor) {
  const std::vector<float> values = testing::floats_of(tensor);
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(values.data());
  return Json::binary(std::vector<std::uint8_t>(bytes, bytes + values.size() * sizeof(float)));
}

Json to_json(const io::StateSlice& slice) {
  return {{"name", slice.name},
          {"begin", slice.begin},
          {"dtype", name_of(slice.values.dtype())},
          {"shape", slice.full_shape},
          {"given as", slice.values.shape()},
          {"bits", bits_of(slice.values)}};
}

Json to_json(const std::vector<io::StateSlice>& slices) {
  Json all = Json::array();
  for (const io::StateSlice& slice : slices) all.push_back(to_json(slice));
  return all;
}

std::int64_t peak_of(const std::function<void()>& call) {
  MemoryTracker& tracker = Context::current().tracker();
  const std::int64_t before = tracker.current_total();
  tracker.reset_peak();
  call();
  return tracker.peak_total() - before;
}

Watch fails_at(int n) {
  return [n, seen = std::make_shared<std::atomic<int>>(0)](int rank) {
    if (rank == 0 && ++*seen == n) throw Error("no space left on this device");
  };
}

Names listing(const std::filesystem::path& folder) {
  Names names;
  for (const auto& each : std::filesystem::directory_iterator(folder)) {
    const std::string name = each.path().filename().string();
    if (!name.starts_with('.')) names.push_back(name);  // the library marks its folders
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<Json> in_world(int ranks, std::uint64_t seed,
                           const std::function<void(ProcessGroup&, Json&)>& body,
                           std::string* failure, const Watch& watch) {
  std::vector<Json> noted(static_cast<std::size_t>(ranks), Json::object());
  RankOptions options = ranks_on(device_of_rank(), ranks, seed);
  if (watch) {
    options.decorate = [&](std::shared_ptr<Backend> backend) {
      return std::make_shared<Watched>(std::move(backend), watch);
    };
  }
  try {
    run_ranks(options, [&](ProcessGroup& group) {
      body(group, noted[static_cast<std::size_t>(group.rank())]);
    });
  } catch (const TodoError&) {
    throw;
  } catch (const std::exception& error) {
    if (failure == nullptr) throw;
    *failure = error.what();
  }
  return noted;
}

}  // namespace fsdp::graded
