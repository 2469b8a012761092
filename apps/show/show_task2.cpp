// Task 2: one layer of nano as one flat vector, and which rank holds what of it.
#include "show/show.h"
#include "task1_meta_device/meta_device.h"
#include "task2_flat_parameter/flat_parameter.h"
#include "tensor/ops.h"

#include <algorithm>
#include <array>

namespace fsdp::show {
namespace {

/// The flat parameter of one layer, as one rank makes it from a meta start.
class Layer {
 public:
  Layer(int rank, int ranks)
      : model_(deferred_.build([] { return std::make_shared<nn::TransformerLM>(nano()); })),
        flat_("layers.0", model_->blocks()[0]->named_parameters(), rank, ranks, kCpu,
              [this](const Variable& parameter, std::int64_t begin, const Tensor& out) {
                deferred_.init_slice(parameter, begin, out);
              }) {}
  FlatParameter& flat() { return flat_; }

 private:
  DeferredInit deferred_;
  std::shared_ptr<nn::TransformerLM> model_;
  FlatParameter flat_;
};

void show_units(Show& show) {
  nn::TransformerLM model(nano());
  std::vector<nn::Module*> modules{&model.embedding()};
  for (const auto& block : model.blocks()) modules.push_back(block.get());
  modules.push_back(&model.head());
  const auto lists = parameters_of_units(model, modules);
  show.line("\n{:12} {:>10} {:>10}", "unit of nano", "parameters", "elements");
  constexpr std::array<const char*, 5> kNames = {"embedding", "layers.0", "layers.1", "head",
                                                 "root"};
  for (std::size_t i = 0; i < lists.size(); ++i) {
    std::int64_t numel = 0;
    for (const auto& each : lists[i]) numel += each.variable.data().numel();
    show.line("  {:10} {:>10} {:>10}", kNames.at(i), lists[i].size(), grouped(numel));
  }
}

void show_map(Show& show, const FlatParameter& flat) {
  show.line("layers.0: N = {}, W = {}, P = {}, n = {}, padding {}", grouped(flat.numel()), kRanks,
            grouped(flat.padded_numel()), grouped(flat.shard_numel()),
            flat.padded_numel() - flat.numel());
  std::string ranks;
  for (int rank = 0; rank < kRanks; ++rank) ranks += fmt::format("  rank {}", rank);
  show.line("  {:31} {:>12}{}", "elements of", "in the vector", ranks);
  for (std::size_t span = 0; span < flat.spans().size(); ++span) {
    const Span& each = flat.spans()[span];
    std::string cells;
    for (int rank = 0; rank < kRanks; ++rank) {
      std::int64_t numel = 0;
      for (const ShardPiece& piece : flat.pieces_of(rank)) {
        if (piece.span == span) numel += piece.numel;
      }
      cells += fmt::format("  {:>6}", numel == 0 ? "." : grouped(numel));
    }
    const std::string prefix = "model.layers.0.";
    const std::string path =
        each.path.starts_with(prefix) ? each.path.substr(prefix.size()) : each.path;
    show.line("  {:31} {:>12}{}", path,
              fmt::format("[{}, {})", each.begin, each.begin + each.numel), cells);
  }
}

// Every rank's shard, in the flat vector of one rank: what an all-gather will do.
void show_views(Show& show, const Values& eager) {
  Layer layer(0, kRanks);
  FlatParameter& flat = layer.flat();
  const auto shard = Context::current().tracker().current()[MemoryKind::sharded_param];
  show.line("\nA rank holds {} bytes of it; the layer alone is {} bytes.", grouped(shard),
            grouped(flat.numel() * 4));
  flat.full().storage()->allocate();
  for (int rank = 0; rank < kRanks; ++rank) {
    Layer other(rank, kRanks);
    ops::copy(flat.full().narrow(0, rank * flat.shard_numel(), flat.shard_numel()),
              other.flat().shard());
  }
  std::int64_t same = 0;
  for (const nn::NamedParameter& each : flat.parameters()) {
    same += same_bits(eager.at(each.path), 0, each.variable.data());
  }
  show.check(same == flat.numel(),
             "laid end to end, the four shards are the layer of an eager build, bit by bit");
  show.check(std::all_of(flat.parameters().begin(), flat.parameters().end(),
                         [&](const nn::NamedParameter& each) {
                           return each.variable.data().storage() == flat.full().storage();
                         }),
             "the model reads its parameters there: they are views, and nothing was copied");
}

void show_task(Show& show) {
  Values eager;
  alone([&] {
    nn::TransformerLM model(nano());
    for (const auto& [path, variable] : model.variables()) {
      eager[path] = variable.data().to_vector<float>();
    }
  });
  alone([&] {
    Layer first(0, kRanks);
    show_map(show, first.flat());
    Layer last(4, 5);
    const FlatParameter& flat = last.flat();
    show.line("Over 5 ranks: P = {}, n = {}, and rank 4 ends with {} elements of padding.",
              grouped(flat.padded_numel()), grouped(flat.shard_numel()),
              flat.shard_numel() - flat.valid_shard_numel());
  });
  alone([&] { show_views(show, eager); });
  alone([&] { show_units(show); });
}

}  // namespace
}  // namespace fsdp::show

int main() { return fsdp::show::run(2, fsdp::show::show_task); }
