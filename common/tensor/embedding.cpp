#include "tensor/operands.h"
#include "tensor/ops.h"
#include "tensor/simd.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

namespace fsdp::ops {
namespace {

/// Checked before anything is written, so that an error leaves the output as it was.
void check_tokens(const char* op, const std::int32_t* tokens, std::int64_t count,
                  std::int64_t vocabulary) {
  for (std::int64_t i = 0; i < count; ++i) {
    FSDP_CHECK(tokens[i] >= 0 && tokens[i] < vocabulary,
               "{}: token {} at position {} is outside the vocabulary [0, {})", op, tokens[i], i,
               vocabulary);
  }
}

/// The positions of the tokens but `padding`, equal tokens side by side and in their order.
std::vector<std::int64_t> grouped_by_token(const std::int32_t* tokens, std::int64_t count,
                                           std::int64_t padding) {
  std::vector<std::int64_t> positions(static_cast<std::size_t>(count));
  std::iota(positions.begin(), positions.end(), 0);
  std::erase_if(positions, [=](std::int64_t at) { return tokens[at] == padding; });
  std::ranges::stable_sort(positions, {}, [=](std::int64_t at) { return tokens[at]; });
  return positions;
}

/// Columns [begin, end) of table row after table row: what it holds, plus its rows of `from` in
/// their order, rounded once.
template <class T>
void add_rows(T* to, const T* from, const std::int32_t* tokens,
              const std::vector<std::int64_t>& positions, std::int64_t width, std::int64_t begin,
              std::int64_t end) {
  simd::for_lanes<T>(end - begin, [&](std::int64_t j, auto count) {
    for (auto at = positions.begin(); at != positions.end();) {
      const std::int32_t token = tokens[*at];
      T* const row = to + token * width + begin + j;
      simd::Vec<T> sum = simd::load_n<T>(row, count);
      for (; at != positions.end() && tokens[*at] == token; ++at) {
        sum += simd::load_n<T>(from + *at * width + begin + j, count);
      }
      simd::store_n<T>(row, sum, count);
    }
  });
}

}  // namespace

void embedding(const Tensor& out, const Tensor& table, const Tensor& tokens) {
  Operands args("embedding");
  args.expect_dims("table", table, 2).expect_dims("tokens", tokens, 1);
  const std::int64_t vocabulary = table.size(0), width = table.size(1), rows = tokens.size(0);
  args.expect("out", out, {rows, width}).expect("table", table, {vocabulary, width});
  args.expect_indices("tokens", tokens, {rows});
  if (is_accelerated(args.device())) return accelerated<embedding>(out, table, tokens);
  args.compute(costs::embedding(out.numel(), args.size()), [&]<class T>(T) {
    const std::int32_t* token = tokens.data<std::int32_t>();
    check_tokens("embedding", token, rows, vocabulary);
    const T* from = table.data<T>();
    T* to = out.data<T>();
    const auto nbytes = static_cast<std::size_t>(width) * sizeof(T);
    if (nbytes == 0) return;
    parallel_ranges(rows, row_grain(width), [=](std::int64_t begin, std::int64_t end, std::byte*) {
      for (std::int64_t r = begin; r < end; ++r) {
        std::memcpy(to + r * width, from + token[r] * width, nbytes);
      }
    });
  });
}

void embedding_backward(const Tensor& dtable, const Tensor& dout, const Tensor& tokens, Write write,
                        std::int64_t padding) {
  Operands args("embedding_backward");
  args.expect_dims("dtable", dtable, 2).expect_dims("tokens", tokens, 1);
  const std::int64_t vocabulary = dtable.size(0), width = dtable.size(1), rows = tokens.size(0);
  args.expect("dtable", dtable, {vocabulary, width}).expect("dout", dout, {rows, width});
  args.expect_indices("tokens", tokens, {rows});
  const std::int64_t cleared = write == Write::set ? dtable.numel() : 0;
  if (is_accelerated(args.device()))
    return accelerated<embedding_backward>(dtable, dout, tokens, write, padding);
  args.compute(costs::embedding_backward(dout.numel(), cleared, args.size()), [&]<class T>(T) {
    const std::int32_t* token = tokens.data<std::int32_t>();
    check_tokens("embedding_backward", token, rows, vocabulary);
    if (write == Write::set) fill(dtable, 0);
    const T* from = dout.data<T>();
    T* to = dtable.data<T>();
    // Threads share out the columns: within one, the tokens are met in their order.
    constexpr std::int64_t kColumns = 128 / sizeof(T);  // two cache lines
    if constexpr (kIsHalf<T>) {
      const std::vector<std::int64_t> positions = grouped_by_token(token, rows, padding);
      parallel_ranges(width, kColumns, [&](std::int64_t begin, std::int64_t end, auto*) {
        add_rows(to, from, token, positions, width, begin, end);
      });
    } else {
      parallel_ranges(width, kColumns, [=](std::int64_t begin, std::int64_t end, auto*) {
        for (std::int64_t r = 0; r < rows; ++r) {
          if (token[r] == padding) continue;
          const T* add = from + r * width;
          T* row = to + token[r] * width;
          for (std::int64_t j = begin; j < end; ++j) row[j] += add[j];
        }
      });
    }
  });
}

}  // namespace fsdp::ops
