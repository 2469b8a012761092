/// @file
/// What the judge of task 1 knows: the model of a case, built the ordinary way.
#pragma once

#include "device/context.h"
#include "graded/case.h"
#include "graded/expect.h"
#include "nn/module.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace fsdp::graded {

/// One initialization, in order.
struct Drawn {
  std::string path;
  InitSpec spec;
  std::uint64_t begin = 0;  ///< its first word
  std::int64_t numel = 0;
  DType dtype = DType::float32;
};

/// The model of a case as an ordinary build makes it, `earlier` such builds after the beginning.
class Eager {
 public:
  explicit Eager(const Case& asked, int earlier = 0);
  nn::Module& model() { return *model_; }
  Context& context() { return *context_; }
  const std::vector<Drawn>& drawn() const { return drawn_; }
  std::uint64_t begin() const { return begin_; }   ///< where the generator stood before
  std::uint64_t end() const { return end_; }       ///< … and after
  const Breakdown& held() const { return held_; }  ///< bytes it holds, by kind
  /// Every path, tied ones too, and its elements.
  std::map<std::string, std::vector<float>> values();
  const Drawn& drawn(const std::string& path) const;

 private:
  std::unique_ptr<Context> context_;
  std::shared_ptr<nn::Module> model_;
  std::vector<Drawn> drawn_;
  std::uint64_t begin_ = 0, end_ = 0;
  Breakdown held_;
};

/// run(), for a case of `step` far into a stream or a parameter. Code that computes all that comes
/// before gets there too, in hours: the failure says so.
const Observations& run_far(const std::string& step, const std::string& scenario,
                            const Setup& setup);

/// Elements [first, first + count) of a parameter whose words begin at `word` of stream `seed`.
Tensor draw(const InitSpec& spec, std::uint64_t seed, std::uint64_t word, std::int64_t first,
            std::int64_t count, DType dtype = DType::float32);

/// Checks what `rank` noted under `key`: elements [first, first + count) of a parameter.
void check_slice(Check& check, const Observations& seen, int rank, const std::string& key,
                 const Eager& eager, const Drawn& drawn, std::int64_t first, std::int64_t count,
                 std::vector<Cause> causes = {});

}  // namespace fsdp::graded
