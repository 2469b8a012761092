#include "comm/processes/message.h"

#include "base/check.h"

#include <cstring>
#include <memory>
#include <type_traits>

namespace fsdp::processes {
namespace {

class Writer {
 public:
  template <class T>
  void operator()(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto* begin = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), begin, begin + sizeof value);
  }
  void operator()(const std::string& text) { list(text); }
  void operator()(const std::vector<int>& numbers) { list(numbers); }
  void operator()(const std::shared_ptr<const DeviceOperands>& operands) {
    (*this)(operands != nullptr);
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  template <class List>
  void list(const List& values) {
    (*this)(values.size());
    for (const auto& value : values) (*this)(value);
  }

  std::vector<std::byte> bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class T>
  void operator()(T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    FSDP_CHECK(bytes_.size() >= sizeof value,
               "a control message is too short: the ranks run different versions of this program");
    std::memcpy(&value, bytes_.data(), sizeof value);
    bytes_ = bytes_.subspan(sizeof value);
  }
  void operator()(std::string& text) { list(text); }
  void operator()(std::vector<int>& numbers) { list(numbers); }
  void operator()(std::shared_ptr<const DeviceOperands>& operands) {
    bool are_there = false;
    (*this)(are_there);
    if (are_there) operands = std::make_shared<const DeviceOperands>();
  }

 private:
  template <class List>
  void list(List& values) {
    std::size_t count = 0;
    (*this)(count);
    FSDP_CHECK(count <= bytes_.size(),
               "a control message is too short: the ranks run different versions of this program");
    values.resize(count);
    for (auto& value : values) (*this)(value);
  }

  std::span<const std::byte> bytes_;
};

// All fields in order, for whoever visits them.
template <class Visitor, class Fields>
void visit(Visitor& visit, Fields& message) {
  visit(message.kind);
  visit(message.world);
  visit(message.group);
  visit(message.sequence);
  visit(message.call.op);
  visit(message.call.numel);
  visit(message.call.dtype);
  visit(message.call.reduce);
  visit(message.call.root);
  visit(message.call.label.unit);
  visit(message.call.label.phase);
  visit(message.call.on_device);
  visit(message.choice);
  visit(message.unwinding);
  visit(message.times);
  visit(message.text);
  visit(message.type);
  visit(message.is_provisional);
  visit(message.have_devices_failed);
  visit(message.rank);
  visit(message.part);
  visit(message.members);
}

}  // namespace

std::vector<std::byte> to_bytes(const Message& message) {
  Writer writer;
  visit(writer, message);
  return writer.take();
}

Message from_bytes(std::span<const std::byte> bytes) {
  Message message;
  Reader reader(bytes);
  visit(reader, message);
  return message;
}

}  // namespace fsdp::processes
