#include "task5/oracle.h"

#include "device/context.h"
#include "optim/optimizer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <utility>

namespace fsdp::graded {
namespace {

std::unique_ptr<optim::Optimizer> optimizer_of(const Case& asked) {
  const std::string name = asked.options.value("optimizer", "adamw");
  if (name != "adamw") {
    return std::make_unique<optim::Sgd>(
        optim::Sgd::Options{.momentum = name == "momentum" ? 0.9 : 0.0, .weight_decay = 0.1});
  }
  return std::make_unique<optim::AdamW>(optim::AdamW::Options{});
}

/// The values that a whole flat parameter starts with.
Floats start_of_flat(const Case& asked, const FlatSpec& spec, std::size_t flat) {
  Floats whole;
  for (std::size_t p = 0; p < spec.shapes.size(); ++p) {
    const Floats part = start_of(asked, spec, flat, p).to_vector<float>();
    whole.insert(whole.end(), part.begin(), part.end());
  }
  return whole;
}

}  // namespace

std::int64_t shard_numel(const FlatSpec& spec, int world_size) {
  return (spec.numel() + world_size - 1) / world_size;
}

std::int64_t padded_numel(const FlatSpec& spec, int world_size) {
  return shard_numel(spec, world_size) * world_size;
}

std::int64_t valid_numel(const FlatSpec& spec, int rank, int world_size) {
  const std::int64_t n = shard_numel(spec, world_size);
  return std::clamp<std::int64_t>(spec.numel() - rank * n, 0, n);
}

std::int64_t trainable_bytes(const Case& asked, std::int64_t per_element, bool whole) {
  std::int64_t total = 0;
  for (const FlatSpec& spec : specs_of(asked)) {
    if (!spec.trainable) continue;
    total += per_element *
             (whole ? padded_numel(spec, asked.world_size) : shard_numel(spec, asked.world_size));
  }
  return total;
}

template <class T>
TrainingOf<T> train(const Case& asked, int steps, Applied applied) {
  Context context({.seed = asked.seed});
  const ContextScope scope(context);
  const auto specs = specs_of(asked);
  const auto optimizer = optimizer_of(asked);
  std::vector<optim::Piece> pieces;
  optimizer->set_steps(asked.options.value("begin_at", 0));
  TrainingOf<T> training;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const std::vector<float> start = start_of_flat(asked, specs[i], i);
    const std::vector<T> whole(start.begin(), start.end());
    pieces.push_back({.key = std::to_string(i),
                      .param = Tensor::from(whole, {specs[i].numel()}),
                      .grad = {},
                      .decay = specs[i].decay,
                      .unit = specs[i].unit});
  }
  std::vector<std::size_t> trainable;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].trainable) trainable.push_back(i);
  }
  std::vector<optim::Piece> updated;
  for (const std::size_t i : trainable) updated.push_back(pieces[i]);
  for (int step = 1; step <= steps; ++step) {
    const int from = applied == Applied::own_gradients ? step : 1;
    for (std::size_t k = 0; k < trainable.size(); ++k) {
      updated[k].grad =
          as(dtype_of(asked), gradient_of(asked, specs[trainable[k]], trainable[k], from));
    }
    optimizer->step(updated, learning_rate(step));
  }
  for (const optim::Piece& piece : pieces) {
    training["param"].push_back(piece.param.to_vector<T>());
  }
  for (const std::string& name : optimizer->state_names()) {
    training[name].resize(specs.size());
    for (std::size_t k = 0; k < trainable.size(); ++k) {
      training[name][trainable[k]] = optimizer->state(updated[k]).at(name).to_vector<T>();
    }
  }
  return training;
}
template Training train(const Case& asked, int steps, Applied applied);
template TrainingOf<double> train(const Case& asked, int steps, Applied applied);

std::int64_t states_of(const Case& asked) {
  return static_cast<std::int64_t>(optimizer_of(asked)->state_names().size());
}

bool any_has(const std::vector<std::string>& lines, const std::string& part) {
  return std::any_of(lines.begin(), lines.end(),
                     [&](const std::string& line) { return line.find(part) != std::string::npos; });
}

std::vector<Cause> causes_of_error(const Json& attempt, const Case& asked) {
  const bool is_lookup = attempt.at("what").get<std::string>().find("::at") != std::string::npos;
  const bool is_narrow =
      attempt.at("what").get<std::string>().find("of a float64 tensor") != std::string::npos;
  return {{is_narrow, "You take a tensor for float32, but shards and states have their own dtype"},
          {is_lookup && attempt.at("type") == "other",
           fmt::format("You looked up a state that this optimizer does not have: its states are "
                       "[{}], and another optimizer has others",
                       fmt::join(optimizer_of(asked)->state_names(), ", "))}};
}

template <class T>
std::vector<T> shard_of(const std::vector<T>& whole, const FlatSpec& spec, int rank,
                        int world_size) {
  const std::int64_t n = shard_numel(spec, world_size);
  std::vector<T> shard(static_cast<std::size_t>(n), 0);
  std::copy_n(whole.begin() + std::min(rank * n, spec.numel()), valid_numel(spec, rank, world_size),
              shard.begin());
  return shard;
}
template Floats shard_of(const Floats& whole, const FlatSpec& spec, int rank, int world_size);
template std::vector<double> shard_of(const std::vector<double>& whole, const FlatSpec& spec,
                                      int rank, int world_size);

Floats start_of_shard(const Case& asked, std::size_t flat, int rank) {
  const FlatSpec spec = specs_of(asked).at(flat);
  return shard_of(start_of_flat(asked, spec, flat), spec, rank, asked.world_size);
}

std::vector<Floats> gradients_of(const Case& asked, int step) {
  const auto specs = specs_of(asked);
  std::vector<Floats> all;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].trainable) {
      all.push_back(gradient_of(asked, specs[i], i, step).to_vector<float>());
    }
  }
  return all;
}

std::vector<Floats> gradients_of(const Case& asked, int step, int rank) {
  const auto specs = specs_of(asked);
  std::vector<Floats> all = gradients_of(asked, step);
  std::size_t next = 0;
  for (const FlatSpec& spec : specs) {
    if (!spec.trainable) continue;
    Floats& mine = all[next++];
    mine = shard_of(mine, spec, rank, asked.world_size);
    mine.resize(static_cast<std::size_t>(valid_numel(spec, rank, asked.world_size)));
  }
  return all;
}

std::vector<Slice> slices_of(const Case& asked, int rank, int world_size,
                             const Training& training) {
  const auto specs = specs_of(asked);
  std::vector<Slice> slices;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const std::int64_t n = shard_numel(specs[i], world_size);
    std::int64_t begin = 0;  // of the parameter, in the flat vector
    for (std::size_t p = 0; p < specs[i].shapes.size(); ++p) {
      const std::int64_t end = begin + numel_of(specs[i].shapes[p]);
      const std::int64_t first = std::max(begin, rank * n), last = std::min(end, (rank + 1) * n);
      for (const auto& [name, flats] : training) {
        if (first >= last || flats[i].empty()) continue;
        slices.push_back(
            {fmt::format("{}/{} {} from {}: {} elements", name, path_of(specs[i], i, p),
                         fsdp::to_string(specs[i].shapes[p]), first - begin, last - first),
             {flats[i].begin() + first, flats[i].begin() + last}});
      }
      begin = end;
    }
  }
  std::sort(slices.begin(), slices.end(),
            [](const Slice& a, const Slice& b) { return a.line < b.line; });
  return slices;
}

}  // namespace fsdp::graded
