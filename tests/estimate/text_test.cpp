// Every number of an estimate's text is the JSON's.
#include "estimate/framework_choice.h"
#include "estimate/modes.h"
#include "report/svg.h"
#include "report/units.h"
#include "support/printed_text.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace fsdp::estimate {
namespace {

using testing::PrintedText;
using testing::Shown;
using Json = nlohmann::json;

constexpr std::array<const char*, 10> kKinds = {
    "sharded_param", "optimizer",      "buffer",         "sharded_grad", "unsharded_param",
    "all_gather",    "unsharded_grad", "reduce_scatter", "activation",   "temp"};

std::string upper(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  return text;
}

/// Reads a text beside the JSON of the same estimate, section by section.
class Reader {
 public:
  Reader(PrintedText& text, const Json& json) : text_(text), json_(json) {
    const std::int64_t most = json.at("allocator").at("tracker_max");
    power_ = most >= std::int64_t{10} << 30 ? 30 : most >= std::int64_t{10} << 20 ? 20 : 10;
  }

  void read() {
    answer();
    text_.rule();
    configuration();
    order();
    peaks();
    phases();
    modules();
    summary();
    where();
    hot_spots();
    communication();
    savings();
    if (json_.at("framework") == "unshard") formula();
    if (json_.at("out_of_memory") != "") {
      section("Out of memory");
      text_.line("{}", {words(json_.at("out_of_memory"))});
    }
    text_.rule();
    text_.line("this estimate took {} B of resident memory", {number(json_.at("resident_bytes"))});
  }

 private:
  static Shown words(const Json& json) { return json.get<std::string>(); }
  static Shown number(const Json& json) { return json.get<double>(); }
  const char* unit() const { return power_ == 30 ? "GiB" : power_ == 20 ? "MiB" : "KiB"; }
  /// "12.34" in the text's unit, "-" for nothing.
  Shown scaled(const Json& nbytes) const {
    return Shown::in(nbytes.get<double>(), static_cast<double>(std::int64_t{1} << power_));
  }
  /// A row is dropped if all of it would read 0.00.
  bool is_visible(const Json& nbytes) const {
    return nbytes.is_number() && amount_of(nbytes) >= 0.005;
  }
  double amount_of(const Json& nbytes) const {
    return nbytes.get<double>() / static_cast<double>(std::int64_t{1} << power_);
  }
  Shown amount(const Json& nbytes) const {
    return nbytes.get<double>() / static_cast<double>(std::int64_t{1} << power_);
  }
  void section(const std::string& title) {
    text_.rule();
    text_.line(title);
  }
  const Json& iterations() const { return json_.at("iterations"); }
  bool is_early() const { return iterations().size() < 2; }

  /// "12.34 GiB": in KiB, MiB or GiB.
  static Shown in_own_unit(std::int64_t nbytes) {
    return Shown::with(nbytes, {{"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}});
  }

  void answer() {
    const Json& answer = json_.at("answer");
    const auto nbytes = [&](const char* key) { return answer.at(key).get<std::int64_t>(); };
    text_.line("framework  {}: {}",
               {words(json_.at("framework")), words(json_.at("framework_is"))});
    std::string pattern = "peak       {} active, {} reserved";
    std::vector<Shown> values{in_own_unit(nbytes("active")), in_own_unit(nbytes("reserved"))};
    if (nbytes("outside") > 0) {
      pattern += "; outside of the allocator about {} more";
      values.push_back(in_own_unit(nbytes("outside")));
    }
    text_.line(pattern, values);
    text_.line(answer.at("is_given").get<bool>()
                   ? "memory     {}, as --memory says"
                   : "memory     {}, what a card of 80 GB has (H100, A100); --memory says another",
               {in_own_unit(nbytes("memory"))});
    verdict(answer, nbytes("memory") - nbytes("reserved") - nbytes("outside"), nbytes("memory"));
    reached();
    remedy(answer);
    text_.line("training   {}", {words(answer.at("training"))});
  }

  void verdict(const Json& answer, std::int64_t left, std::int64_t memory) {
    const double margin = 100 * answer.at("margin").get<double>();
    std::string with = margin == 0 ? "" : ", with a margin of {} %";
    std::vector<Shown> values;
    if (margin != 0) values.emplace_back(margin);
    values.push_back(in_own_unit(left));
    values.emplace_back(100 * static_cast<double>(left) / static_cast<double>(memory));
    if (answer.at("fits").get<bool>()) {
      return text_.line("verdict    fits" + with + ": {} are left, {} %", values);
    }
    if (left >= 0) {
      return text_.line("verdict    does NOT fit" + with + ": only {} are left, {} %", values);
    }
    text_.line("verdict    does NOT fit: {} are missing", {in_own_unit(-left)});
  }

  void reached() {
    const Json& peak = json_.at("peak");
    std::string pattern = "reached    iteration {}, {}";
    std::vector<Shown> values{number(peak.at("iteration")), words(peak.at("phase"))};
    if (peak.at("micro_step") >= 0) {
      pattern += " of micro-step {}";
      values.push_back(number(peak.at("micro_step")));
    }
    if (peak.at("module") != "") {
      pattern += " in {}";
      values.push_back(words(peak.at("module")));
    }
    const Json& held = highest_phase().at("peak");
    std::vector<std::string> kinds = sorted_kinds(held);
    kinds.resize(3);
    for (const std::string& kind : kinds) {
      if (held.at(kind) == 0) continue;
      pattern += kind == kinds.front() ? ": {} {} %" : ", {} {} %";
      values.emplace_back(upper(kind));
      values.emplace_back(100 * held.at(kind).get<double>() / held.at("total").get<double>());
    }
    text_.line(pattern, values);
  }

  void remedy(const Json& answer) {
    if (answer.at("fits").get<bool>()) return text_.line("to fit     nothing has to change");
    if (!answer.contains("remedy")) {
      return text_.line(
          "to fit     no change or pair of changes is enough that leaves the training as it is");
    }
    const Json& remedy = answer.at("remedy");
    text_.line("to fit     {}{} (peak then {} active, {} reserved)",
               {words(json_.at("config").at("command")), words(remedy.at("options")),
                in_own_unit(remedy.at("peak").get<std::int64_t>()),
                in_own_unit(remedy.at("reserved").get<std::int64_t>())});
  }

  static std::vector<std::string> sorted_kinds(const Json& held) {
    std::vector<std::string> kinds(kKinds.begin(), kKinds.end());
    std::ranges::stable_sort(kinds, std::greater<>(), [&](const std::string& kind) {
      return held.at(kind).get<std::int64_t>();
    });
    return kinds;
  }

  void configuration() {
    const Json& config = json_.at("config");
    const Json& settings = config.at("settings");
    const auto setting = [&](const char* key) { return Shown(words(settings.at(key))); };
    text_.line("{}: {}, {} parameters", {words(config.at("source")), words(config.at("model")),
                                         number(json_.at("parameters"))});
    const std::string& replicas =
        settings.at("parallel.data_parallel_replicate_degree").get_ref<const std::string&>();
    const std::string& ranks = settings.at("parallel.ranks").get_ref<const std::string&>();
    std::string placement = settings.at("parallel.strategy");
    if (replicas != "1") {
      placement += fmt::format(", {} replicas of {} shards", replicas,
                               std::stoi(ranks) / std::stoi(replicas));
    }
    text_.line("strategy {}, rank {} of {}, {} micro-batch(es) of {} sequences of {} tokens",
               {placement, number(config.at("rank")), ranks, number(config.at("micro_batches")),
                setting("training.local_batch_size"), number(config.at("sequence_length"))});
    static const std::map<std::string, const char*> kModes{
        {"real", "mode real: ranks are threads, with bytes"},
        {"fake", "mode fake: bytes are counted, none are allocated"},
        {"paper",
         "mode paper: the rules of the framework are walked through, operation by operation"}};
    text_.line(kModes.at(config.at("mode")));
    for (const Json& each : config.at("warnings")) text_.line("warning: {}", {words(each)});
    section("Effective configuration");
    text_.row({"key", "value", "given in"});
    for (const auto& [key, origin] : config.at("origins").items()) {
      text_.row({key, words(settings.at(key)), words(origin)});
    }
  }

  void order() {
    section("Order");
    text_.row({"made, in order", fmt::format("held after {}", unit()), "highest so far"});
    for (const Json& each : json_.at("order")) {
      text_.row({words(each.at("name")), scaled(each.at("held")), scaled(each.at("highest"))});
    }
  }

  void peaks() {
    section("Peak memory per iteration");
    std::vector<Shown> header{fmt::format("peak memory, {}", unit())};
    for (std::size_t i = 0; i < iterations().size(); ++i) {
      header.insert(header.end(), {fmt::format("iter {}", i), "%"});
    }
    text_.row(header);
    const auto add = [&](const char* kind) {
      std::vector<Shown> cells{kind == std::string("total") ? kind : upper(kind)};
      for (const Json& each : iterations()) {
        const Json& peak = each.at("peak");
        const double total = peak.at("total");
        cells.push_back(scaled(peak.at(kind)));
        cells.emplace_back(total == 0 ? 0 : 100 * peak.at(kind).get<double>() / total);
      }
      text_.row(cells);
    };
    for (const char* kind : kKinds) {
      if (std::ranges::any_of(iterations(), [&](const Json& each) {
            return is_visible(each.at("peak").at(kind));
          })) {
        add(kind);
      }
    }
    text_.rule();
    add("total");
    for (std::size_t i = 0; i < iterations().size(); ++i) {
      const Json& each = iterations()[i];
      std::string pattern = "iter {}: peak {} B";
      std::vector<Shown> values{i, number(each.at("peak").at("total"))};
      if (each.at("host_peak").at("total") > 0) {
        pattern += ", host {} B";
        values.push_back(number(each.at("host_peak").at("total")));
      }
      pattern += "; OPTIMIZER {} B before, {} B after";
      values.push_back(number(each.at("before").at("optimizer")));
      values.push_back(number(each.at("after").at("optimizer")));
      if (!each.at("learning_rate").is_null()) {
        pattern += "; learning rate {}";
        values.push_back(number(each.at("learning_rate")));
      }
      text_.line(pattern, values);
    }
  }

  void phases() {
    section("Phases");
    text_.row({fmt::format("peak of a phase, {}", unit()), "iter", "peak", "TEMP", "ACTIVATION",
               "in module"});
    for (std::size_t i = 0; i < iterations().size(); ++i) {
      for (const Json& each : iterations()[i].at("phases")) {
        if (each.at("micro_step") > 0) continue;
        const Json& peak = each.at("peak");
        const std::string module = each.at("module");
        text_.row({words(each.at("name")), i, scaled(peak.at("total")),
                   fmt::format("{} B", report::grouped(peak.at("temp"))),
                   scaled(peak.at("activation")), module.empty() ? "-" : module});
      }
    }
  }

  /// Bytes of a state; null where the module never was in it.
  static Json held(const Json& module, const char* state, const std::string& kind) {
    const Json& states = module.at("states");
    return states.contains(state) ? states.at(state).at(kind) : Json();
  }

  void modules() {
    section(fmt::format("Modules and states ({})",
                        is_early() ? "until memory ran out" : "second iteration"));
    constexpr std::array kStates = {"BEF_PRE_FW", "AFT_PRE_FW", "BEF_POST_FW", "AFT_POST_FW",
                                    "BEF_PRE_BW", "AFT_PRE_BW", "BEF_POST_BW", "AFT_POST_BW",
                                    "PEAK_FW",    "PEAK_BW"};
    std::vector<Shown> header{fmt::format("module, {}", unit())};
    header.insert(header.end(), kStates.begin(), kStates.end());
    text_.row(header);
    for (const Json& module : iterations().back().at("modules")) {
      if (!module.at("is_unit").get<bool>()) continue;
      const auto add = [&](const std::string& kind, const std::string& name) {
        std::vector<Shown> cells{name};
        for (const char* state : kStates) {
          const Json nbytes = held(module, state, kind);
          cells.push_back(nbytes.is_null() ? Shown("none") : scaled(nbytes));
        }
        text_.row(cells);
      };
      text_.rule();
      add("total", module.at("name"));
      for (const char* kind : kKinds) {
        const bool is_held = std::ranges::any_of(
            kStates, [&](const char* state) { return is_visible(held(module, state, kind)); });
        if (is_held) add(kind, upper(kind));
      }
    }
  }

  void summary() {
    section("Summary");
    const Json& counts = json_.at("allocator");
    const std::string suffix = fmt::format("{{}} {}", unit());
    const Json& active = counts.at("peak_active");
    text_.line(
        fmt::format("peak active: {0} | peak reserved: {0} | num_retries: {{}}", suffix),
        {amount(active), amount(counts.at("peak_reserved")), number(counts.at("num_retries"))});
    text_.line(fmt::format("Tracker Max: {}", suffix), {amount(counts.at("tracker_max"))});
    text_.line(fmt::format("Tracker Accuracy: {{}}{}",
                           active == counts.at("tracker_max") ? " (equal)" : ""),
               {number(counts.at("tracker_accuracy"))});
    text_.line(
        "exactly: active {} B (of which {} B are the kernels' scratch), reserved - active "
        "{} B (fragmentation), tracker {} B",
        {number(active), number(counts.at("scratch")), number(counts.at("fragmentation")),
         number(counts.at("tracker_max"))});
    const Json& peak = json_.at("peak");
    text_.line(fmt::format("the log of {{}} events {} the same peak",
                           peak.at("replays").get<bool>() ? "replays to" : "DOES NOT replay to"),
               {number(peak.at("events"))});
  }

  /// The first phase that is as high as its iteration.
  const Json& highest_phase() const {
    const Json& all = iterations().at(json_.at("peak").at("iteration").get<std::size_t>());
    for (const Json& each : all.at("phases")) {
      if (each.at("peak").at("total") == all.at("peak").at("total")) return each;
    }
    throw std::runtime_error("no phase is as high as its iteration");
  }

  void where() {
    section("Where the peak is");
    const Json& peak = json_.at("peak");
    const Json& last = peak.at("last_allocation");
    std::string pattern = "iteration {}, {}";
    std::vector<Shown> values{number(peak.at("iteration")), words(peak.at("phase"))};
    if (peak.at("micro_step") >= 0) {
      pattern += " of micro-step {}";
      values.push_back(number(peak.at("micro_step")));
    }
    if (peak.at("module") != "") {
      pattern += ", while the {} of {} runs";
      values.emplace_back(peak.at("is_backward").get<bool>() ? "backward" : "forward");
      values.push_back(words(peak.at("module")));
    }
    if (last.at("nbytes") == 0) return text_.line(pattern + "; nothing was allocated", values);
    pattern += "; it is reached by {} B of {}";
    values.push_back(number(last.at("nbytes")));
    values.emplace_back(upper(last.at("kind")));
    if (last.at("owner") != "") {
      pattern += " for {}";
      values.push_back(words(last.at("owner")));
    }
    text_.line(pattern, values);
    text_.row({"why", unit(), "%", "what it is"});
    const Json& held = highest_phase().at("peak");
    for (const std::string& kind : sorted_kinds(held)) {
      if (!is_visible(held.at(kind))) continue;
      text_.row({upper(kind), scaled(held.at(kind)),
                 100 * held.at(kind).get<double>() / held.at("total").get<double>(),
                 reason_of(kind)});
    }
  }

  static const char* reason_of(const std::string& kind) {
    static const std::map<std::string, const char*> kReasons{
        {"sharded_param", "the masters that the optimizer steps: 4 N / shards"},
        {"unsharded_param",
         "gathered units: the one that computes, those gathered ahead, the last one"},
        {"sharded_grad", "reduced gradients until the step"},
        {"unsharded_grad", "gradients before their reduction"},
        {"all_gather", "copies of shards while they are gathered"},
        {"reduce_scatter", "results of reductions in flight, and copies for the wire"},
        {"activation", "what the tape keeps for backward"},
        {"temp", "gradients of activations, and the kernels' scratch"},
        {"optimizer", "the optimizer's state: 8 N / shards for AdamW"},
        {"buffer", "the tables of rotary positions"}};
    return kReasons.at(kind);
  }

  void hot_spots() {
    section("Hot spots");
    text_.row({"held at the peak by", "kind", unit()});
    const Json& holdings = json_.at("peak").at("held_by");
    for (std::size_t i = 0; i < std::min<std::size_t>(10, holdings.size()); ++i) {
      if (!is_visible(holdings[i].at("nbytes"))) continue;
      std::string name = holdings[i].at("unit");
      const std::string kind = holdings[i].at("kind");
      if (name.empty()) name = kind == "temp" || kind == "activation" ? "the loss" : "(no unit)";
      text_.row({name, upper(kind), scaled(holdings[i].at("nbytes"))});
    }
    std::vector<std::pair<std::int64_t, std::string>> rises;
    for (const Json& module : iterations().back().at("modules")) {
      if (module.at("is_unit").get<bool>()) continue;
      const auto total = [&](const char* state) {
        const Json nbytes = held(module, state, "total");
        return nbytes.is_null() ? 0 : nbytes.get<std::int64_t>();
      };
      rises.emplace_back(total("PEAK_BW") - total("BEF_PRE_BW"),
                         module.at("name").get<std::string>());
    }
    std::ranges::stable_sort(rises, std::greater<>(), [](const auto& each) { return each.first; });
    for (std::size_t i = 0; i < std::min<std::size_t>(3, rises.size()); ++i) {
      if (!is_visible(rises[i].first)) continue;
      text_.line(
          fmt::format("backward of {{}} rises by {{}} {} above what was held before it", unit()),
          {rises[i].second, amount(rises[i].first)});
    }
  }

  void communication() {
    section("Communication buffers");
    std::vector<Shown> header{fmt::format("highest by itself, {}", unit())};
    for (std::size_t i = 0; i < iterations().size(); ++i) {
      header.emplace_back(fmt::format("iter {}", i));
    }
    std::vector<std::vector<Shown>> rows;
    for (const char* kind : {"all_gather", "unsharded_param", "reduce_scatter", "unsharded_grad"}) {
      std::vector<Shown> cells{upper(kind)};
      bool is_shown = false;
      for (const Json& each : iterations()) {
        cells.push_back(scaled(each.at("highest_of_each_kind").at(kind)));
        is_shown = is_shown || is_visible(each.at("highest_of_each_kind").at(kind));
      }
      if (is_shown) rows.push_back(cells);
    }
    if (rows.empty()) return text_.line("none");
    text_.row(header);
    for (const auto& row : rows) text_.row(row);
  }

  void savings() {
    section("What would lower the peak (by formula)");
    const Json& all = json_.at("savings");
    if (all.empty()) {
      return text_.line("no single change of the configuration lowers the peak");
    }
    text_.row({"one change", fmt::format("then {}", unit()), "saves", "because"});
    for (const Json& each : all) {
      text_.row({words(each.at("change")), scaled(each.at("peak")), scaled(each.at("saved")),
                 words(each.at("meaning"))});
    }
  }

  void formula() {
    section("Second opinion");
    const Json& opinion = json_.at("formula");
    for (std::size_t i = 0; i < opinion.at("peaks").size(); ++i) {
      std::string pattern = "iter {}: the formula says {} B";
      std::vector<Shown> values{i, number(opinion.at("peaks")[i].at("total"))};
      if (i < opinion.at("host_peaks").size()) {
        pattern += ", host {} B";
        values.push_back(number(opinion.at("host_peaks")[i].at("total")));
      }
      text_.line(pattern, values);
    }
    if (!opinion.at("is_comparable").get<bool>()) {
      return text_.line(json_.at("config").at("granularity") != 1
                            ? "not compared: the formula does not round sizes"
                            : "not compared: the run ended early");
    }
    text_.line("equal, byte for byte and kind for kind, at {} states and peaks",
               {number(opinion.at("compared"))});
  }

  PrintedText& text_;
  const Json& json_;
  int power_ = 10;
};

testing::ReadText beside(const Json& json) {
  return [&json](PrintedText& text) { Reader(text, json).read(); };
}

/// What the text of an estimate says otherwise than its JSON.
std::string difference(const Estimate& made) {
  const Json json = Json::parse(to_json(made));
  return testing::difference_of(to_text(made, Detail::all_modules), beside(json));
}

const Words kNano = {"--model.preset=nano", "--parallel.ranks=3", "--training.local_batch_size=2"};

Words nano(const Words& more) {
  Words words = kNano;
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

}  // namespace

TEST_CASE("every number of an estimate's text is that of its JSON", "[estimator][text]") {
  for (const Words& more :
       {Words{"--training.global_batch_size=12", "--training.mixed_precision_param=bfloat16",
              "--lr_scheduler.kind=warmup_linear", "--lr_scheduler.warmup_steps=5"},
        {"--parallel.strategy=fsdp", "--parallel.offload_params=true", "--compile.enable=true"},
        {"--parallel.strategy=zero2", "--lora.rank=2"},
        {"--parallel.strategy=single", "--parallel.ranks=1", "--training.seq_len=1",
         "--memory_estimation.disable_fake_mode=true"}}) {
    CHECK(difference(estimated(nano(more))) == "");
  }
  CHECK(difference(with_distinct_numbers()) == "");
  CHECK(
      difference(estimated({"--model.preset=nano", "--parallel.strategy=fsdp", "--parallel.ranks=6",
                            "--parallel.data_parallel_replicate_degree=3"})) == "");
  const Estimate large = estimated({"--model.preset=llama2_70b", "--parallel.ranks=64"});
  CHECK_THAT(to_text(large, Detail::all_modules), contains("peak memory, GiB"));
  CHECK(difference(large) == "");
  EstimatorConfig config = configured(kNano);
  for (const std::size_t limit : {1U, 8'000U, 100'000U}) {
    config.limit = limit;
    CHECK(difference(make_estimate(config)) == "");
  }
  config = configured(kNano);
  for (const std::size_t memory : {1U, 100'000U, 400'000U, 1'000'000U}) {
    config.memory = memory;
    config.margin = 0.15;
    CHECK(difference(make_estimate(config)) == "");
  }
  config = configured(nano({"--parallel.strategy=fsdp", "--training.global_batch_size=12"}));
  choose_framework("pytorch", config);
  CHECK(difference(make_estimate(config)) == "");
  config = configured(kNano);
  config.granularity = 512;
  CHECK(difference(make_estimate(config)) == "");
}

TEST_CASE("a number of an estimate's text that were another one would be noticed",
          "[estimator][text]") {
  const Estimate made = estimated(nano({"--training.mixed_precision_param=bfloat16"}));
  const Json json = Json::parse(to_json(made));
  CHECK(testing::unnoticed_change(to_text(made, Detail::all_modules), beside(json)) == "");
}

TEST_CASE("the page of an estimate has the numbers of its text, and the peak in the curve",
          "[estimator][text]") {
  for (const char* strategy : {"--parallel.strategy=fsdp", "--parallel.strategy=ddp"}) {
    const Estimate made = estimated(nano({strategy}));
    const std::string page = to_html(made);
    CHECK_THAT(page,
               contains("<pre>" + report::escaped(to_text(made, Detail::all_modules)) + "</pre>"));
    CHECK_THAT(page, contains("peak " + report::grouped(made.run.tracker_max()) + " B</text>"));
  }
}

}  // namespace fsdp::estimate
