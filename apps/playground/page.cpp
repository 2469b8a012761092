#include "playground/page.h"

#include "base/check.h"
#include "nn/transformer_config.h"
#include "paper/books.h"
#include "paper/step_walk.h"
#include "plan/evaluator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace fsdp::playground {

namespace {

using optim::Strategy;
using paper::MemoryOptions;

/// A setting of the page: its lines, each of which must be asked for.
class Setting {
 public:
  explicit Setting(std::string_view text) {
    while (!text.empty()) {
      const std::string_view line = text.substr(0, text.find('\n'));
      text.remove_prefix(std::min(text.size(), line.size() + 1));
      const std::size_t space = line.find(' ');
      if (space == std::string_view::npos)
        throw InputError(fmt::format("'{}' is no key and value", line));
      values_[std::string(line.substr(0, space))] = line.substr(space + 1);
    }
  }
  void check_all_known() const {
    for (const auto& [key, value] : values_) {
      if (!asked_.contains(key)) throw InputError(fmt::format("no setting is called '{}'", key));
    }
  }

  /// One of these names.
  template <class T>
  void read(const char* key, T& value, const std::map<std::string, T>& names) {
    const std::string* text = find(key);
    if (text == nullptr) return;
    const auto found = names.find(*text);
    if (found == names.end()) throw InputError(fmt::format("{} cannot be '{}'", key, *text));
    value = found->second;
  }
  template <class Integer>
  void read(const char* key, Integer& value) {
    const std::string* text = find(key);
    if (text == nullptr) return;
    const char* end = text->data() + text->size();
    const auto [stop, error] = std::from_chars(text->data(), end, value);
    if (error != std::errc() || stop != end || value < 0) {
      throw InputError(fmt::format("{} is '{}', must be a whole number from 0 to {}", key, *text,
                                   std::numeric_limits<Integer>::max()));
    }
  }
  /// What a unit takes, of what is told in units per second.
  void read_rate(const char* key, double& ps) {
    const std::string* text = find(key);
    if (text == nullptr) return;
    char* stop = nullptr;
    const double rate = std::strtod(text->c_str(), &stop);
    if (*stop != '\0' || !(rate > 0)) {
      throw InputError(fmt::format("{} is '{}', must be a positive number", key, *text));
    }
    ps = kPicosecondsPerSecond / rate;
  }

 private:
  const std::string* find(const char* key) {
    asked_.insert(key);
    const auto found = values_.find(key);
    return found == values_.end() ? nullptr : &found->second;
  }
  std::map<std::string, std::string> values_;
  std::set<std::string> asked_;
};

const std::map<std::string, bool> kYesNo{{"true", true}, {"false", false}};

MemoryOptions options_of(Setting& setting) {
  MemoryOptions options;
  optim::Recipe& recipe = options.recipe;
  recipe.clip = 1;
  std::map<std::string, Strategy> strategies;
  for (const Strategy each :
       {Strategy::single, Strategy::ddp, Strategy::zero1, Strategy::zero2, Strategy::fsdp}) {
    strategies[name_of(each)] = each;
  }
  setting.read("strategy", recipe.strategy, strategies);
  setting.read("world", recipe.ranks);
  setting.read("replicas", recipe.replicas);
  setting.read("batch", options.batch);
  setting.read("length", options.length);
  std::map<std::string, std::optional<DType>> formats{{"none", std::nullopt}};
  for (const std::string& each : model_formats()) formats[each] = dtype_named(each);
  setting.read("param", recipe.precision.param_dtype, formats);
  setting.read("reduce", recipe.precision.reduce_dtype, formats);
  bool reshards = true, offloads = false;
  setting.read("reshard", reshards, kYesNo);
  if (!reshards) recipe.sharding.reshard_after_forward = ReshardAfterForward::never();
  setting.read("prefetch", recipe.sharding.prefetch_depth);
  using optim::Checkpointing;
  setting.read("checkpoint", recipe.checkpointing,
               {{"none", Checkpointing::none},
                {"inside", Checkpointing::inside},
                {"operations", Checkpointing::operations},
                {"around", Checkpointing::around}});
  setting.read("offload", offloads, kYesNo);
  (recipe.is_zero() ? recipe.sharding.offload.optimizer : recipe.sharding.offload.params) =
      offloads;
  return options;
}

CostModel machine_of(Setting& setting) {
  CostModel machine;
  machine.host_ps_per_byte = kHostPsPerByte;
  setting.read_rate("flops", machine.ps_per_flop);
  setting.read_rate("hbm", machine.ps_per_byte);
  setting.read_rate("link", machine.link_ps_per_byte);
  setting.read_rate("bus", machine.bus_ps_per_byte);
  setting.read("latency", machine.alpha_ps);
  return machine;
}

/// "model.layers.3": "block 3".
std::string readable(std::string_view name) {
  constexpr std::string_view kBlock = "model.layers.";
  if (name.starts_with(kBlock)) return fmt::format("block {}", name.substr(kBlock.size()));
  if (name == "model.embed_tokens") return "embedding";
  return name == nn::kHeadName ? "head" : std::string(name);
}

constexpr std::array<const char*, 4> kStreams{"compute", "link", "far_link", "bus"};

/// Watches one rank for two steps, and writes down the second.
class Drawing : public paper::WalkObserver {
 public:
  Drawing(const nn::TransformerConfig& model, const MemoryOptions& options,
          const CostModel& machine)
      : books_(options) {
    books_.open_clock(machine, paper::kernel_times(model, options, machine));
    books_.set_observer(this);
    paper::StepWalk walk(model, options, books_);
    walk.next_step();
    begin_ = now_;
    spans_.clear();
    curve_.clear();
    computed_ = kNone;
    walk.next_step();
  }

  void on_bytes(const paper::BytesChange& change) override {
    if (change.space != paper::MemorySpace::device) return;
    total_ += change.nbytes;
    curve_.emplace_back(change.time, total_);
    if (total_ <= highest_) return;
    highest_ = total_;
    moment_ = moment();
  }
  void on_relabel(const paper::BytesChange&, MemoryKind) override {}
  void on_state(const std::string& module, nn::CallState state) override {
    const bool is_begin =
        state == nn::CallState::before_pre_forward || state == nn::CallState::before_pre_backward;
    if (is_begin && module != "root") segment_ = segment_of(module);
  }
  void on_phase(const char* name, int /*micro_step*/) override {
    phase_ = name;
    const bool is_model = phase_ == "forward" || phase_ == "backward";
    segment_ = is_model ? "loss" : phase_ == "clip" ? "norm" : phase_;
  }
  void on_span(const paper::Span& span) override {
    using enum paper::Span::Stream;
    if (span.stream == compute) now_ = span.end;
    const std::string what = span.what.empty() ? segment_ : readable(span.what);
    if (span.stream == compute && computed_ < spans_.size()) {
      Drawn& last = spans_[computed_];
      if (last.part == span.part && last.what == what) return void(last.end = span.end);
    }
    if (span.stream == compute) computed_ = spans_.size();
    spans_.push_back({span.stream, span.part, what, span.begin, span.end});
  }

  /// Of the first highest one: "backward of block 3".
  const std::string& moment_of_peak() const { return moment_; }
  std::string spans_json() const {
    std::vector<std::string> all;
    for (const Drawn& each : spans_) {
      all.push_back(fmt::format(R"(["{}","{}","{}",{},{}])",
                                kStreams[static_cast<std::size_t>(each.stream)], name_of(each.part),
                                each.what, each.begin - begin_, each.end - begin_));
    }
    return fmt::format("[{}]", fmt::join(all, ","));
  }
  std::string curve_json() const {
    std::vector<std::string> all;
    for (const auto& [time, total] : curve_) {
      all.push_back(fmt::format("[{},{}]", time - begin_, total));
    }
    return fmt::format("[{}]", fmt::join(all, ","));
  }

 private:
  struct Drawn {
    paper::Span::Stream stream;
    paper::TimePart part;
    std::string what;
    std::int64_t begin, end;
  };
  /// "model.layers.3" and its operations: "block 3".
  static std::string segment_of(const std::string& module) {
    if (module.starts_with("model.layers.")) {
      return readable(module.substr(0, module.find('.', sizeof "model.layers.")));
    }
    for (const char* each : {"model.embed_tokens", nn::kHeadName}) {
      if (module.starts_with(each)) return readable(each);
    }
    return "loss";
  }
  std::string moment() const {
    if (phase_ == "inputs") return "the inputs";
    if (phase_ != "forward" && phase_ != "backward") return "the optimizer step";
    return fmt::format("{} of {}{}", phase_, segment_.starts_with("block") ? "" : "the ", segment_);
  }

  paper::Books books_;
  std::string phase_ = "inputs", segment_ = "loss", moment_;
  std::int64_t total_ = 0, highest_ = 0, now_ = 0, begin_ = 0;
  static constexpr std::size_t kNone = ~std::size_t{0};
  std::size_t computed_ = kNone;  // the last span of what is computed
  std::vector<Drawn> spans_;
  std::vector<std::pair<std::int64_t, std::int64_t>> curve_;
};

}  // namespace

std::string models_json() {
  std::vector<std::string> all;
  for (const auto& [name, model] : nn::model_presets()) {
    all.push_back(fmt::format(R"({{"name":"{}","parameters":{},"length":{}}})", name,
                              model.parameter_count(), model.max_position_embeddings));
  }
  return fmt::format("[{}]", fmt::join(all, ","));
}

std::string step_json(std::string_view setting) {
  Setting lines(setting);
  nn::TransformerConfig model = nn::TransformerConfig::tiny();
  lines.read("model", model, nn::model_presets());
  const MemoryOptions options = options_of(lines);
  const CostModel machine = machine_of(lines);
  lines.check_all_known();
  paper::check_options(model, options);
  const plan::Outcome outcome = plan::Evaluator(model, machine).evaluate(options);
  MemoryOptions busiest = outcome.options;
  busiest.rank = outcome.busiest_rank;
  const Drawing drawing(model, busiest, machine);
  const std::string moment = busiest.rank == outcome.options.rank
                                 ? drawing.moment_of_peak()
                                 : Drawing(model, outcome.options, machine).moment_of_peak();

  std::string kinds, spent;
  for (int i = 0; i < kMemoryKinds; ++i) {
    const auto kind = static_cast<MemoryKind>(i);
    kinds += fmt::format(R"("{}":{},)", lower_name_of(kind), outcome.device[kind]);
  }
  for (std::size_t i = 0; i < paper::kTimeParts; ++i) {
    const auto part = static_cast<paper::TimePart>(i);
    spent +=
        fmt::format(R"({}"{}":{})", i == 0 ? "" : ",", name_of(part), outcome.time.split[part]);
  }
  return fmt::format(
      R"({{"peak":{{{}"total":{},"moment":"{}"}},"host":{},"step":{},"spent":{{{}}},)"
      R"("channels":{{"latency":{},"transfer":{}}},"spans":{},"curve":{}}})",
      kinds, outcome.device.total(), moment, outcome.host.total(), outcome.step(), spent,
      outcome.time.channels.latency, outcome.time.channels.transfer, drawing.spans_json(),
      drawing.curve_json());
}

}  // namespace fsdp::playground
