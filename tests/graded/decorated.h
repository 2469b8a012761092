/// @file
/// Backends around a backend: they record calls, delay them or let them fail.
#pragma once

#include "comm/process_group.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace fsdp::graded {

/// Forwards every call to the inner backend. Splits are decorated like their parent.
class Decorated : public Backend {
 public:
  explicit Decorated(std::shared_ptr<Backend> inner) : inner_(std::move(inner)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  bool is_far() const override { return inner_->is_far(); }
  void abort(const std::string& reason) override { inner_->abort(reason); }

  std::shared_ptr<Backend> split(int color, int key, std::int64_t sequence) override {
    return decorate(inner_->split(color, key, sequence));
  }
  std::shared_ptr<Backend> split_regular(int count, int stride, std::int64_t sequence) override {
    return decorate(inner_->split_regular(count, stride, sequence));
  }

 protected:
  virtual std::shared_ptr<Backend> decorate(std::shared_ptr<Backend> part) = 0;
  Backend& inner() { return *inner_; }

 private:
  std::shared_ptr<Backend> inner_;
};

}  // namespace fsdp::graded
