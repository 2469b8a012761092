/// @file
/// @ingroup paper
/// PaperTape: what a tape keeps and computes, operation by operation, in bytes that are counted and
/// never allocated, and in kernels that never run.
#pragma once

#include "paper/segment_memory.h"
#include "tensor/costs.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace fsdp::paper {

/// What is held, and every change of it.
struct Meter {
  MemoryPoint now{"entry"};
  std::vector<MemoryPoint> points;
  std::vector<Kernel> kernels;
  void note() {
    now.kernels = kernels.size();
    points.push_back(now);
  }
};

/// The bytes of one tensor, counted while anything holds them.
class Buffer {
 public:
  Buffer(Meter& meter, bool is_temp, std::int64_t nbytes)
      : meter_(meter), is_temp_(is_temp), nbytes_(nbytes) {
    count(nbytes);
  }
  ~Buffer() { count(-nbytes_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  std::int64_t nbytes() const { return nbytes_; }
  /// A checkpoint has kept it, and its second forward need not compute it.
  bool is_taken() const { return is_taken_; }
  void take() { is_taken_ = true; }
  void become_temp() {
    if (!std::exchange(is_temp_, true)) meter_.now.activation -= nbytes_;
    meter_.now.temp += nbytes_;
    meter_.note();
  }

 private:
  void count(std::int64_t nbytes) {
    (is_temp_ ? meter_.now.temp : meter_.now.activation) += nbytes;
    meter_.note();
  }
  Meter& meter_;
  bool is_temp_;
  std::int64_t nbytes_;
  bool is_taken_ = false;
};
using Bytes = std::shared_ptr<Buffer>;

struct Operation {
  std::string name;
  std::int64_t output;  // bytes of its result, and of the gradient of that
  std::vector<Bytes> saved = {};
  Bytes gradient = {};  // d(result), summed so far
  std::function<void(Operation&, const Bytes& dout)> backward = {};
};
using Origin = std::shared_ptr<Operation>;  // null: needs no gradient

/// A variable: its bytes, and the operation that made it.
struct Value {
  Bytes bytes;
  Origin origin;
};

struct Weight {
  std::int64_t nbytes;
  bool is_trained;
};

/// What the tapes of all engines have in common: values that are counted while they are held, and
/// operations that backward runs from the last to the first.
class Tape {
 public:
  Value input(std::int64_t nbytes, bool needs_gradient);

 protected:
  void start(const std::string& name) { meter_.now.after = name; }
  Bytes activation(std::int64_t n) { return std::make_shared<Buffer>(meter_, false, n); }
  Bytes temp(std::int64_t n) { return std::make_shared<Buffer>(meter_, true, n); }
  /// y is the result of this operation.
  Operation& record(const std::string& name, std::int64_t out, std::vector<Bytes> saved, Value& y);
  void run_backward();

  Meter meter_;
  Origin source_;                   // stands for what made the input
  std::vector<Origin> operations_;  // in the order of recording
};

/// One segment's tape. Each function follows the rules of its namesake in autograd/functions.h:
/// what it allocates and saves, what its backward allocates and frees, and which kernels both call.
/// A value has `rows` rows; `out` is the width of an operation's result.
class PaperTape : public Tape {
 public:
  using Forward = std::function<Value(const Value&)>;

  /// @param element bytes of what the model computes in
  PaperTape(std::int64_t element, std::int64_t rows) : element_(element), rows_(rows) {}

  /// The segment is checkpointed, and keeps the results of these operations (KeptResults).
  void checkpoint(std::vector<std::string> kept_operations);
  /// False in the first forward of a checkpoint.
  bool is_recording() const { return pass_ != Pass::first; }

  Value embedding(const std::string& name, std::int64_t out, const Weight& table);
  Value linear(const std::string& name, const Value& x, std::int64_t in, std::int64_t out,
               const Weight& weight);
  /// @param with_sum x is a deferred sum, which this computes
  Value rms_norm(const std::string& name, const Value& x, std::int64_t width, const Weight& weight,
                 bool with_sum = false);
  /// With rotary positions.
  Value attention(const Value& q, const Value& k, const Value& v, const costs::Heads& heads);
  Value swiglu(const Value& gate, const Value& up, std::int64_t width);
  /// The sum is written over y, unless a checkpoint keeps it.
  Value add(const Value& x, Value y);
  Value deferred_sum(const Value& x, Value y);
  Value scale(const Value& x, std::int64_t width);
  /// The mean over the rows, in float32.
  Value cross_entropy(const Value& logits, std::int64_t vocabulary);

  /// Runs the segment forward and backward; `forward` maps its input, of `in` bytes, to its output,
  /// of `out`. It is called a second time for a checkpoint.
  /// @param needs_gradient whether the input does; set to whether the output does
  SegmentMemory run(std::int64_t in, std::int64_t out, const Forward& forward,
                    bool& needs_gradient);

 private:
  std::int64_t row_bytes(std::int64_t width) const { return element_ * rows_ * width; }
  std::size_t size() const { return static_cast<std::size_t>(element_); }
  void compute(const Cost& cost) { meter_.kernels.push_back({meter_.now.after, cost}); }
  enum class Pass {
    taped,
    first,   // of a checkpoint: nothing is recorded
    second,  // recorded, in backward
  };
  Bytes result(const std::string& operation, std::int64_t nbytes);
  Value run_forward(const Value& x, const Forward& forward, std::vector<MemoryPoint>& points,
                    std::vector<Kernel>& kernels);
  void settle_checkpoint(bool needs_gradient, SegmentMemory& memory) const;
  void add_weight_gradient(const Weight& weight);
  // As in autograd/node.h and autograd/rows.h.
  void target(const Origin& origin);
  void pass(const Origin& origin, const Bytes& gradient);
  Bytes over_or_fresh(const Bytes& saved, std::int64_t nbytes);

  std::int64_t element_;
  std::int64_t rows_;
  Pass pass_ = Pass::taped;
  std::vector<std::string> kept_operations_;
  std::vector<Bytes> kept_;  // their results, in order
  std::size_t next_kept_ = 0;
  bool is_loss_ = false;  // it makes the gradient of its result
};

}  // namespace fsdp::paper
