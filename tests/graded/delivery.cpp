#include "graded/delivery.h"

#include "comm/decorators.h"

#include <cstring>
#include <deque>
#include <utility>
#include <vector>

namespace fsdp::graded {
namespace {

std::size_t nbytes_of(const Collective& call, std::int64_t parts) {
  return static_cast<std::size_t>(call.numel * parts) * size_of(call.dtype);
}
std::size_t nbytes_in(const Collective& call, int world_size) {
  return nbytes_of(call, call.op == CollectiveOp::reduce_scatter ? world_size : 1);
}
std::size_t nbytes_out(const Collective& call, int world_size) {
  return nbytes_of(call, call.op == CollectiveOp::all_gather ? world_size : 1);
}
/// All bits set is NaN in every floating type.
void poison(std::byte* bytes, std::size_t nbytes) { std::memset(bytes, 0xFF, nbytes); }

// ------------------------------------------------------------------------------------------ lazy

/// A collective that was issued and has not been started.
struct Held {
  Collective call;
  std::vector<std::byte> input;  // kept only if the output's poison covers it
  std::unique_ptr<Work::Pending> started;
};

/// The collectives of one rank in the order they were issued; they are started in that order, up to
/// the one that is waited for, as the peers will do it too.
class Line {
 public:
  explicit Line(std::shared_ptr<Backend> inner) : inner_(std::move(inner)) {}

  std::shared_ptr<Held> add(const Collective& call) {
    auto held = std::make_shared<Held>(Held{call, {}, nullptr});
    const std::size_t in = nbytes_in(call, inner_->size()), out = nbytes_out(call, inner_->size());
    if (call.out != nullptr && out > 0) {
      if (call.in != nullptr && call.in >= call.out && call.in < call.out + out) {
        held->input.assign(call.in, call.in + in);
      }
      poison(call.out, out);
    }
    waiting_.push_back(held);
    return held;
  }

  void start_up_to(const Held* last) {
    while (!waiting_.empty()) {
      const std::shared_ptr<Held> held = waiting_.front();
      waiting_.pop_front();
      if (!held->input.empty()) {
        std::memcpy(const_cast<std::byte*>(held->call.in), held->input.data(), held->input.size());
      }
      held->started = inner_->start(held->call);
      if (held.get() == last) return;
    }
  }

 private:
  std::shared_ptr<Backend> inner_;
  std::deque<std::shared_ptr<Held>> waiting_;
};

class LazyPending : public Work::Pending {
 public:
  LazyPending(std::shared_ptr<Line> line, std::shared_ptr<Held> held)
      : line_(std::move(line)), held_(std::move(held)) {}
  bool is_done() const override { return held_->started != nullptr && held_->started->is_done(); }
  void wait() override {
    if (held_->started == nullptr) line_->start_up_to(held_.get());
    held_->started->wait();
  }

 private:
  std::shared_ptr<Line> line_;
  std::shared_ptr<Held> held_;
};

class Lazy : public Decorated {
 public:
  explicit Lazy(const std::shared_ptr<Backend>& inner)
      : Decorated(inner), line_(std::make_shared<Line>(inner)) {}

  std::unique_ptr<Work::Pending> start(const Collective& call) override {
    return std::make_unique<LazyPending>(line_, line_->add(call));
  }
  std::shared_ptr<Backend> split(int color, int key, std::int64_t sequence) override {
    line_->start_up_to(nullptr);
    return Decorated::split(color, key, sequence);
  }
  std::shared_ptr<Backend> split_regular(int count, int stride, std::int64_t sequence) override {
    line_->start_up_to(nullptr);
    return Decorated::split_regular(count, stride, sequence);
  }

 private:
  std::shared_ptr<Backend> decorate(std::shared_ptr<Backend> part) override {
    return make_delivered(std::move(part), Delivery::lazy);
  }
  std::shared_ptr<Line> line_;
};

// ----------------------------------------------------------------------------------------- eager

/// Finished already; the input it poisoned comes back when it is waited for.
class EagerPending : public Work::Pending {
 public:
  EagerPending(std::byte* in, std::vector<std::byte> input) : in_(in), input_(std::move(input)) {
    if (!input_.empty()) poison(in_, input_.size());
  }
  bool is_done() const override { return true; }
  void wait() override {
    if (!input_.empty()) std::memcpy(in_, input_.data(), input_.size());
    input_.clear();
  }

 private:
  std::byte* in_;
  std::vector<std::byte> input_;
};

class Eager : public Decorated {
 public:
  using Decorated::Decorated;

  std::unique_ptr<Work::Pending> start(const Collective& call) override {
    // An all-gather's input may be read while it is in flight (the optimizer does); the input of a
    // reduction is given away.
    std::vector<std::byte> input;
    if (call.op == CollectiveOp::reduce_scatter || call.op == CollectiveOp::reduce) {
      input.assign(call.in, call.in + nbytes_in(call, size()));
    }
    inner().start(call)->wait();
    return std::make_unique<EagerPending>(const_cast<std::byte*>(call.in), std::move(input));
  }

 private:
  std::shared_ptr<Backend> decorate(std::shared_ptr<Backend> part) override {
    return make_delivered(std::move(part), Delivery::eager);
  }
};

}  // namespace

std::shared_ptr<Backend> make_delivered(std::shared_ptr<Backend> inner, Delivery delivery) {
  switch (delivery) {
    case Delivery::plain:
      return inner;
    case Delivery::lazy:
      return std::make_shared<Lazy>(std::move(inner));
    case Delivery::eager:
      return std::make_shared<Eager>(std::move(inner));
  }
  return inner;
}

}  // namespace fsdp::graded
