#include "tensor/attention_tiles.h"
#include "tensor/operands.h"
#include "tensor/ops.h"

namespace fsdp::ops {
namespace {

attention_tiles::Extents checked_extents(const char* op, const Tensor& q, const Tensor& k) {
  FSDP_CHECK(q.is_defined() && q.dims() == 4 && k.is_defined() && k.dims() == 4,
             "{}: q must be (B, T, H, D) and k (B, T, G, D)", op);
  const attention_tiles::Extents e{.batch = q.size(0),
                                   .length = k.size(1),
                                   .heads = q.size(2),
                                   .kv_heads = k.size(2),
                                   .width = q.size(3),
                                   .queries = q.size(1)};
  FSDP_CHECK(e.width > 0 && e.heads > 0 && e.kv_heads > 0 && e.heads % e.kv_heads == 0,
             "{}: {} key/value heads do not divide {} heads, or the head width {} is not positive",
             op, e.kv_heads, e.heads, e.width);
  return e;
}

costs::Heads heads_of(const attention_tiles::Extents& e) {
  return {e.batch, e.queries, e.length, e.heads, e.kv_heads, e.width};
}

}  // namespace

void attention(const Tensor& out, const Tensor& lse, const Tensor& q, const Tensor& k,
               const Tensor& v) {
  attention_tiles::Extents e = checked_extents("attention", q, k);
  FSDP_CHECK(e.queries <= e.length, "attention: {} queries, but only {} keys", e.queries, e.length);
  Operands args("attention");
  args.expect("q", q, {e.batch, e.queries, e.heads, e.width});
  args.expect("k", k, {e.batch, e.length, e.kv_heads, e.width});
  args.expect("v", v, {e.batch, e.length, e.kv_heads, e.width});
  args.expect("out", out, {e.batch, e.queries, e.heads, e.width});
  args.expect_wide("lse", lse, {e.batch, e.heads, e.queries});
  if (is_accelerated(args.device())) return accelerated<attention>(out, lse, q, k, v);
  args.compute(costs::attention(heads_of(e), args.size()), [&]<class T>(T) {
    e.tile = attention_tiles::tile_for(e.width, sizeof(Wide<T>));
    const attention_tiles::ForwardArrays<T> arrays{out.data<T>(), lse.data<Wide<T>>(), q.data<T>(),
                                                   k.data<T>(), v.data<T>()};
    const std::int64_t end = (e.length + e.tile - 1) / e.tile;
    const std::int64_t tiles = end - e.first_query() / e.tile;
    const std::int64_t heads = e.batch * e.heads;
    Context::current().pool().for_each(heads * tiles, [&](std::int64_t piece, std::byte* scratch) {
      // Head by head, so that its keys and values are still cached; the longest tile first.
      const std::int64_t head = piece / tiles, tile = end - 1 - piece % tiles;
      attention_tiles::forward(e, arrays, head / e.heads, head % e.heads, tile * e.tile, scratch);
    });
  });
}

void attention_backward(const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& dout,
                        const Tensor& out, const Tensor& lse, const Tensor& q, const Tensor& k,
                        const Tensor& v) {
  attention_tiles::Extents e = checked_extents("attention_backward", q, k);
  Operands args("attention_backward");
  const std::initializer_list<std::int64_t> shape{e.batch, e.length, e.heads, e.width};
  const std::initializer_list<std::int64_t> kv_shape{e.batch, e.length, e.kv_heads, e.width};
  args.expect("q", q, shape).expect("k", k, kv_shape).expect("v", v, kv_shape);
  args.expect("out", out, shape).expect("dout", dout, shape).expect("dq", dq, shape);
  args.expect("dk", dk, kv_shape).expect("dv", dv, kv_shape);
  args.expect_wide("lse", lse, {e.batch, e.heads, e.length});
  if (is_accelerated(args.device()))
    return accelerated<attention_backward>(dq, dk, dv, dout, out, lse, q, k, v);
  args.compute(costs::attention_backward(heads_of(e), args.size()), [&]<class T>(T) {
    e.tile = attention_tiles::tile_for(e.width, sizeof(Wide<T>));
    const attention_tiles::BackwardArrays<T> arrays{
        dq.data<T>(),        dk.data<T>(), dv.data<T>(), dout.data<T>(), out.data<T>(),
        lse.data<Wide<T>>(), q.data<T>(),  k.data<T>(),  v.data<T>()};
    Context::current().pool().for_each(
        e.batch * e.kv_heads, [&](std::int64_t piece, std::byte* scratch) {
          attention_tiles::backward(e, arrays, piece / e.kv_heads, piece % e.kv_heads, scratch);
        });
  });
}

}  // namespace fsdp::ops
