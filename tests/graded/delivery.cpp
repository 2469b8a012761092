#include "graded/delivery.h"

#include "base/check.h"
#include "graded/decorated.h"

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

// What follows happens to bytes of the host at once, and to those of a device in the order of the
// rank's compute stream.

/// All bits set is NaN in every floating type.
void poison(const Collective& call, std::byte* bytes, std::size_t nbytes) {
  if (call.on_device == nullptr) {
    std::memset(bytes, 0xFF, nbytes);
  } else {
    call.on_device->device->fill(bytes, 0xFF, nbytes);
  }
}

std::vector<std::byte> saved(const Collective& call, std::size_t nbytes) {
  if (call.on_device == nullptr) return {call.in, call.in + nbytes};
  std::vector<std::byte> bytes(nbytes);
  call.on_device->device->read(bytes.data(), call.in, nbytes);
  return bytes;
}

void restore(const Collective& call, const std::vector<std::byte>& bytes) {
  auto* const in = const_cast<std::byte*>(call.in);
  if (call.on_device == nullptr) {
    std::memcpy(in, bytes.data(), bytes.size());
  } else {
    call.on_device->device->write(in, bytes.data(), bytes.size());
  }
}

/// `call`, if it begins only now: on a device, after what its stream was given until now.
Collective as_of_now(Collective call) {
  if (call.on_device == nullptr) return call;
  const std::shared_ptr<RankDevice>& device = call.on_device->device;
  call.on_device = std::make_shared<const DeviceOperands>(
      DeviceOperands{device, device->record(device->compute())});
  return call;
}

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
        held->input = saved(call, in);
      }
      poison(call, call.out, out);
    }
    waiting_.push_back(held);
    return held;
  }

  void start_up_to(const Held* last) {
    while (!waiting_.empty()) {
      const std::shared_ptr<Held> held = waiting_.front();
      waiting_.pop_front();
      if (!held->input.empty()) restore(held->call, held->input);
      held->started = inner_->start(as_of_now(held->call));
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
  EagerPending(Collective call, std::vector<std::byte> input)
      : call_(std::move(call)), input_(std::move(input)) {
    if (!input_.empty()) poison(call_, const_cast<std::byte*>(call_.in), input_.size());
  }
  bool is_done() const override { return true; }
  void wait() override {
    if (!input_.empty()) restore(call_, input_);
    input_.clear();
  }

 private:
  Collective call_;
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
      input = saved(call, nbytes_in(call, size()));
    }
    inner().start(call)->wait();
    return std::make_unique<EagerPending>(call, std::move(input));
  }

 private:
  std::shared_ptr<Backend> decorate(std::shared_ptr<Backend> part) override {
    return make_delivered(std::move(part), Delivery::eager);
  }
};

// ----------------------------------------------------------------------------------------- fails

/// An Error and no Aborted, because no rank really fails: a scenario may note it and end.
class FailingPending : public Work::Pending {
 public:
  FailingPending(std::shared_ptr<int> started, int number)
      : started_(std::move(started)), number_(number) {}
  bool is_done() const override { return true; }
  void wait() override {
    if (number_ == *started_) fail("another rank has failed");
  }

 private:
  std::shared_ptr<int> started_;
  int number_;
};

class Fails : public Decorated {
 public:
  using Decorated::Decorated;

  std::unique_ptr<Work::Pending> start(const Collective& call) override {
    inner().start(call)->wait();
    return std::make_unique<FailingPending>(started_, ++*started_);
  }

 private:
  std::shared_ptr<Backend> decorate(std::shared_ptr<Backend> part) override {
    return make_delivered(std::move(part), Delivery::fails);
  }
  std::shared_ptr<int> started_ = std::make_shared<int>(0);
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
    case Delivery::fails:
      return std::make_shared<Fails>(std::move(inner));
  }
  return inner;
}

}  // namespace fsdp::graded
