#include "tensor/operands.h"
#include "tensor/ops.h"

#include <cstring>

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

}  // namespace

void embedding(const Tensor& out, const Tensor& table, const Tensor& tokens) {
  Operands args("embedding");
  args.expect_dims("table", table, 2).expect_dims("tokens", tokens, 1);
  const std::int64_t vocabulary = table.size(0), width = table.size(1), rows = tokens.size(0);
  args.expect("out", out, {rows, width}).expect("table", table, {vocabulary, width});
  args.expect_indices("tokens", tokens, {rows});
  const auto n = static_cast<double>(out.numel());
  dispatch(args.device(), cost_of(0, 2 * n, args.dtype()), [&] {
    const std::int32_t* token = tokens.data<std::int32_t>();
    check_tokens("embedding", token, rows, vocabulary);
    dispatch_floating(args.dtype(), [&]<class T>(T) {
      const T* from = table.data<T>();
      T* to = out.data<T>();
      const auto nbytes = static_cast<std::size_t>(width) * sizeof(T);
      if (nbytes == 0) return;
      parallel_ranges(rows, row_grain(width),
                      [=](std::int64_t begin, std::int64_t end, std::byte*) {
                        for (std::int64_t r = begin; r < end; ++r) {
                          std::memcpy(to + r * width, from + token[r] * width, nbytes);
                        }
                      });
    });
  });
}

void embedding_backward(const Tensor& dtable, const Tensor& dout, const Tensor& tokens,
                        Write write) {
  Operands args("embedding_backward");
  args.expect_dims("dtable", dtable, 2).expect_dims("tokens", tokens, 1);
  const std::int64_t vocabulary = dtable.size(0), width = dtable.size(1), rows = tokens.size(0);
  args.expect("dtable", dtable, {vocabulary, width}).expect("dout", dout, {rows, width});
  args.expect_indices("tokens", tokens, {rows});
  const auto n = static_cast<double>(dout.numel());
  const double cleared = write == Write::set ? static_cast<double>(dtable.numel()) : 0;
  dispatch(args.device(), cost_of(n, 3 * n + cleared, args.dtype()), [&] {
    const std::int32_t* token = tokens.data<std::int32_t>();
    check_tokens("embedding_backward", token, rows, vocabulary);
    if (write == Write::set) fill(dtable, 0);
    dispatch_floating(args.dtype(), [&]<class T>(T) {
      const T* from = dout.data<T>();
      T* to = dtable.data<T>();
      // Threads share out the columns: within one, the tokens are met in their order.
      constexpr std::int64_t kColumns = 128 / sizeof(T);  // two cache lines
      parallel_ranges(width, kColumns, [=](std::int64_t begin, std::int64_t end, std::byte*) {
        for (std::int64_t r = 0; r < rows; ++r) {
          const T* add = from + r * width;
          T* row = to + token[r] * width;
          for (std::int64_t j = begin; j < end; ++j) row[j] += add[j];
        }
      });
    });
  });
}

}  // namespace fsdp::ops
