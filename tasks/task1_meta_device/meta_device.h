/// @file
/// @ingroup task1
/// Task 1: a model without memory, initialized later, elsewhere, or in part.
#pragma once

#include "base/philox.h"
#include "nn/init_observer.h"
#include "nn/module.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

namespace fsdp {

/// Records how the parameters of a model would have been initialized.
///
///     DeferredInit deferred;
///     auto model = deferred.build([&] { return std::make_shared<TransformerLM>(config); });
///                                              // 0 bytes; the generator has not moved
///     deferred.materialize(*model, kCpu);      // the bits of an eager build, or
///     deferred.init_slice(weight, 100, out);   // only weight[100 : 100 + out.numel()]
///
/// Random numbers are counter-based. So a record needs only the parameter's InitSpec and the place
/// where its words begin in the stream. The places also encode the order of the eager build.
class DeferredInit : private nn::InitObserver {
 public:
  /// One deferred initialization.
  struct Record {
    Variable parameter;
    InitSpec spec;
    std::uint64_t stream_begin = 0;  ///< its first word; a constant needs none
  };

  DeferredInit() = default;

  /// Runs `make_model` on the meta device with recording on, and returns what it returns.
  ///
  /// Afterwards no byte was allocated, and records() has one entry per initialized parameter, in
  /// order. The current Context's generator, which moves meanwhile as in an eager build, the device
  /// and the observer are as they were, even if make_model throws.
  template <class MakeModel>
  auto build(MakeModel&& make_model) {
    Recording recording(*this);
    return std::forward<MakeModel>(make_model)();
  }

  /// 1.4  Allocates, on `device`, every recorded parameter of `module` that is still on meta, with
  /// the bits of an eager build. A tied parameter counts once. Also initializes the buffers of
  /// `module`, and moves the current Context's generator to where the eager build would have left
  /// it.
  /// @throws Error naming a parameter on meta that was not recorded here.
  void materialize(nn::Module& module, Device device);

  /// 1.3  Writes elements [begin, begin + out.numel()) of `parameter` as in an eager build, and
  /// computes and allocates nothing else. Works before and after materialize().
  /// @throws Error if the parameter was not recorded here, or the slice is not inside it.
  void init_slice(const Variable& parameter, std::int64_t begin, const Tensor& out) const;

  /// Moves the current generator past all words of the recorded parameters, as an eager build does.
  void advance_generator() const;

  const std::vector<Record>& records() const { return records_; }

  /// The record of `parameter`, found by its id().
  /// @throws Error if the parameter was not recorded here.
  const Record& record_of(const Variable& parameter) const;

 private:
  /// 1.1  The scope of build().
  class Recording {
   public:
    explicit Recording(DeferredInit& owner);
    ~Recording();
    Recording(const Recording&) = delete;
    Recording& operator=(const Recording&) = delete;

   private:
    DeferredInit& owner_;
    std::uint64_t saved_offset_;
    DeviceScope device_;
    nn::InitObserverScope observer_;
  };

  /// 1.2  Records one initialization.
  void on_initialize(const Variable& parameter, const InitSpec& spec) override;

  std::uint64_t seed_ = 0;       // of the generator during build()
  std::uint64_t words_end_ = 0;  // where the eager build would have left it
  std::vector<Record> records_;
  std::unordered_map<const void*, std::size_t> index_;  // Variable::id() -> records_
  std::shared_ptr<void> extra;                          // spare, for the student
};

}  // namespace fsdp
