#include "tensor/tensor.h"

#include "device/context.h"
#include "device/memory_tracker.h"
#include "tensor/dispatch.h"

#include <cstring>
#include <utility>

namespace fsdp {
namespace {

std::vector<std::int64_t> contiguous_strides(const Shape& shape) {
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t step = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = step;
    step *= shape[i];
  }
  return strides;
}

void check_extents(const Shape& shape) {
  for (const std::int64_t extent : shape) {
    FSDP_CHECK(extent >= 0, "shape {} has a negative extent", to_string(shape));
  }
}

int checked_dim(const Tensor& tensor, int dim) {
  const int result = dim < 0 ? dim + tensor.dims() : dim;
  FSDP_CHECK(result >= 0 && result < tensor.dims(),
             "dimension {} does not exist in a tensor of shape {}", dim, to_string(tensor.shape()));
  return result;
}

}  // namespace

Tensor Tensor::empty(Shape shape, DType dtype) {
  return empty(std::move(shape), dtype, Context::current().device());
}

Tensor Tensor::empty(Shape shape, DType dtype, Device device) {
  check_extents(shape);
  const std::size_t nbytes = static_cast<std::size_t>(numel_of(shape)) * size_of(dtype);
  auto storage =
      std::make_shared<Storage>(device, nbytes, AllocationScope::kind(), AllocationScope::owner());
  if (device.type != DeviceType::meta) storage->allocate();
  return view_of(std::move(storage), 0, std::move(shape), dtype);
}

Tensor Tensor::zeros(Shape shape, DType dtype) {
  Tensor result = empty(std::move(shape), dtype);
  if (!result.device().has_data() || result.nbytes() == 0) return result;
  if (result.device().host_can_read()) {
    std::memset(result.raw(), 0, result.nbytes());
  } else {
    Context::current().rank_device().fill(result.raw(), 0, result.nbytes());
  }
  return result;
}

template <class T>
Tensor Tensor::from(const std::vector<T>& values, Shape shape) {
  FSDP_CHECK(static_cast<std::int64_t>(values.size()) == numel_of(shape),
             "{} values do not fit a tensor of shape {}", values.size(), to_string(shape));
  Tensor result = empty(std::move(shape), dtype_of<T>());
  if (!result.device().has_data() || values.empty()) return result;
  if (result.device().host_can_read()) {
    std::memcpy(result.raw(), values.data(), result.nbytes());
  } else {
    Context::current().rank_device().write(result.raw(), values.data(), result.nbytes());
  }
  return result;
}

Tensor Tensor::view_of(std::shared_ptr<Storage> storage, std::int64_t begin, Shape shape,
                       DType dtype) {
  FSDP_CHECK(storage != nullptr, "a view needs a storage");
  check_extents(shape);
  Tensor result;
  result.numel_ = numel_of(shape);
  const auto capacity = static_cast<std::int64_t>(storage->nbytes() / size_of(dtype));
  FSDP_CHECK(begin >= 0 && begin <= capacity && result.numel_ <= capacity - begin,
             "a view of {} elements from offset {} does not fit a storage of {} {} elements",
             result.numel_, begin, capacity, name_of(dtype));
  result.storage_ = std::move(storage);
  result.offset_ = begin;
  result.strides_ = contiguous_strides(shape);
  result.shape_ = std::move(shape);
  result.dtype_ = dtype;
  return result;
}

std::int64_t Tensor::size(int dim) const {
  return shape_[static_cast<std::size_t>(checked_dim(*this, dim))];
}

bool Tensor::is_contiguous() const {
  if (numel_ <= 1) return true;
  std::int64_t step = 1;
  for (std::size_t i = shape_.size(); i-- > 0;) {
    if (shape_[i] != 1 && strides_[i] != step) return false;
    step *= shape_[i];
  }
  return true;
}

Tensor Tensor::view(Shape shape) const {
  FSDP_CHECK(is_defined(), "view() was called on an undefined tensor");
  FSDP_CHECK(is_contiguous(), "view() needs a contiguous tensor; this one of shape {} is strided",
             to_string(shape_));
  check_extents(shape);
  FSDP_CHECK(numel_of(shape) == numel_, "cannot view {} as {}", to_string(shape_),
             to_string(shape));
  Tensor result = *this;
  result.strides_ = contiguous_strides(shape);
  result.shape_ = std::move(shape);
  return result;
}

Tensor Tensor::narrow(int dim, std::int64_t begin, std::int64_t length) const {
  const auto d = static_cast<std::size_t>(checked_dim(*this, dim));
  FSDP_CHECK(begin >= 0 && length >= 0 && length <= shape_[d] && begin <= shape_[d] - length,
             "narrow({}, {}, {}) of shape {}", dim, begin, length, to_string(shape_));
  Tensor result = *this;
  result.offset_ += begin * strides_[d];
  result.shape_[d] = length;
  result.numel_ = numel_of(result.shape_);
  return result;
}

Tensor Tensor::transpose(int a, int b) const {
  const auto first = static_cast<std::size_t>(checked_dim(*this, a));
  const auto second = static_cast<std::size_t>(checked_dim(*this, b));
  Tensor result = *this;
  std::swap(result.shape_[first], result.shape_[second]);
  std::swap(result.strides_[first], result.strides_[second]);
  return result;
}

std::byte* Tensor::raw() const {
  FSDP_CHECK(is_defined(), "an undefined tensor has no data");
  std::byte* bytes = storage_->data();
  if (bytes == nullptr) return nullptr;  // the fake device, or nothing at all
  return bytes + static_cast<std::size_t>(offset_) * size_of(dtype_);
}

template <class T>
std::vector<T> Tensor::to_vector() const {
  const T* source = data<T>();
  FSDP_CHECK(device().has_data(), "a tensor on {} has no values to read", to_string(device()));
  std::vector<T> covered;  // what lies between the first element and the last
  if (!device().host_can_read() && numel_ > 0) {
    std::int64_t last = 0;
    for (std::size_t d = 0; d < shape_.size(); ++d) last += (shape_[d] - 1) * strides_[d];
    covered.resize(static_cast<std::size_t>(last) + 1);
    Context::current().rank_device().read(covered.data(), raw(), covered.size() * sizeof(T));
    source = covered.data();
  }
  std::vector<T> result;
  result.reserve(static_cast<std::size_t>(numel_));
  std::vector<std::int64_t> index(shape_.size(), 0);
  for (std::int64_t n = 0; n < numel_; ++n) {
    std::int64_t at = 0;
    for (std::size_t d = 0; d < index.size(); ++d) at += index[d] * strides_[d];
    result.push_back(source[at]);
    for (std::size_t d = index.size(); d-- > 0;) {
      if (++index[d] < shape_[d]) break;
      index[d] = 0;
    }
  }
  return result;
}

double Tensor::item() const {
  FSDP_CHECK(is_defined(), "item() was called on an undefined tensor");
  FSDP_CHECK(numel_ == 1, "item() needs exactly one element, but the tensor has shape {}",
             to_string(shape_));
  FSDP_CHECK(device().has_data(), "a tensor on {} has no values to read", to_string(device()));
  alignas(std::int64_t) std::byte copied[sizeof(std::int64_t)];
  if (device().host_can_read()) {
    std::memcpy(copied, raw(), nbytes());
  } else {
    Context::current().rank_device().read(copied, raw(), nbytes());
  }
  double result = 0;
  dispatch_any(dtype_, [&]<class T>(T value) {
    std::memcpy(&value, copied, sizeof value);
    result = static_cast<double>(static_cast<Wide<T>>(value));
  });
  return result;
}

template Tensor Tensor::from(const std::vector<float>&, Shape);
template Tensor Tensor::from(const std::vector<double>&, Shape);
template Tensor Tensor::from(const std::vector<std::int32_t>&, Shape);
template Tensor Tensor::from(const std::vector<std::int64_t>&, Shape);
template Tensor Tensor::from(const std::vector<BFloat16>&, Shape);
template Tensor Tensor::from(const std::vector<Float16>&, Shape);
template std::vector<float> Tensor::to_vector() const;
template std::vector<double> Tensor::to_vector() const;
template std::vector<std::int32_t> Tensor::to_vector() const;
template std::vector<std::int64_t> Tensor::to_vector() const;
template std::vector<BFloat16> Tensor::to_vector() const;
template std::vector<Float16> Tensor::to_vector() const;

}  // namespace fsdp
