#include "nn/key_value_cache.h"

#include "base/check.h"
#include "nn/layers.h"

namespace fsdp::nn {

Variable KeyValues::attend(const Variable& q, const Variable& k, const Variable& v, int heads,
                           int kv_heads, const Tensor& cos, const Tensor& sin) {
  FSDP_CHECK(!grad_enabled(), "keys and values are kept without a tape only; open a NoGradScope");
  FSDP_CHECK(q.shape().size() == 3 && q.shape()[0] == 1,
             "keys and values are kept for one sequence only, got q {}", to_string(q.shape()));
  const std::int64_t count = q.shape()[1], begin = length_, end = begin + count;
  FSDP_CHECK(end <= capacity_, "{} tokens after {} do not fit into a cache of {}", count, begin,
             capacity_);
  const std::int64_t kv_width = k.shape()[2], width = kv_width / kv_heads;
  const Tensor query = q.data().view({1, count, heads, width});
  const Tensor key = k.data().view({1, count, kv_heads, width});
  ops::rope(query, cos.narrow(0, begin, count), sin.narrow(0, begin, count), false);
  ops::rope(key, cos.narrow(0, begin, count), sin.narrow(0, begin, count), false);

  if (!keys_.is_defined()) {
    keys_ = Tensor::empty({capacity_, kv_width}, key.dtype(), key.device());
    values_ = Tensor::empty({capacity_, kv_width}, key.dtype(), key.device());
  }
  ops::copy(keys_.narrow(0, begin, count), k.data().view({count, kv_width}));
  ops::copy(values_.narrow(0, begin, count), v.data().view({count, kv_width}));
  length_ = end;

  const Tensor out = Tensor::empty(q.shape(), query.dtype(), query.device());
  const Tensor lse = Tensor::empty({1, heads, count}, wide_of(query.dtype()), query.device());
  const auto kept = [&](const Tensor& rows) {
    return rows.narrow(0, 0, end).view({1, end, kv_heads, width});
  };
  ops::attention(out.view(query.shape()), lse, query, kept(keys_), kept(values_));
  return Variable(out);
}

KeyValueCache::KeyValueCache(Module& model, std::int64_t capacity)
    : attention_(model.continuable_attention()), layers_(attention_.size(), KeyValues(capacity)) {
  for (std::size_t i = 0; i < layers_.size(); ++i) attention_[i]->set_past(&layers_[i]);
}

KeyValueCache::~KeyValueCache() {
  for (Attention* attention : attention_) attention->set_past(nullptr);
}

void KeyValueCache::clear() {
  for (KeyValues& layer : layers_) layer.clear();
}

}  // namespace fsdp::nn
