#include "comm/rank_error.h"

#include "base/check.h"
#include "base/todo.h"

#include <fmt/format.h>

#include <new>
#include <stdexcept>
#include <string>
#include <tuple>
#include <typeinfo>

namespace fsdp {
namespace {

/// The types of which we know how to make another one, with another message.
using Copied = std::tuple<Error, InputError, StorageError, std::runtime_error, std::logic_error,
                          std::invalid_argument, std::out_of_range>;

// Of exactly the same type.
template <class... Types>
void throw_alike(std::tuple<Types...>* /*of*/, const std::exception& error,
                 const std::string& what) {
  const auto try_one = [&]<class Type>(const Type*) {
    if (typeid(error) == typeid(Type)) throw Type(what);
  };
  (try_one(static_cast<const Types*>(nullptr)), ...);
}

}  // namespace

std::string what_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::bad_alloc&) {
    return "out of memory";
  } catch (const std::exception& exception) {
    return exception.what();
  } catch (...) {
    return "an exception that is not a std::exception";
  }
}

std::string type_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& exception) {
    return typeid(exception).name();
  } catch (...) {
    return "";
  }
}

std::exception_ptr make_error(const std::string& type, const std::string& what) {
  std::exception_ptr error = std::make_exception_ptr(std::runtime_error(what));
  if (type == typeid(std::bad_alloc).name()) error = std::make_exception_ptr(std::bad_alloc());
  const auto try_one = [&]<class Type>(const Type*) {
    if (type == typeid(Type).name()) error = std::make_exception_ptr(Type(what));
  };
  const auto try_all = [&]<class... Types>(std::tuple<Types...>*) {
    (try_one(static_cast<const Types*>(nullptr)), ...);
  };
  try_all(static_cast<Copied*>(nullptr));
  try_one(static_cast<const Aborted*>(nullptr));
  try_one(static_cast<const TodoError*>(nullptr));
  return error;
}

void rethrow_from_rank(int rank, const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::bad_alloc&) {
    fail("rank {}: out of memory; use a smaller model or fewer ranks", rank);
  } catch (const std::exception& exception) {
    throw_alike(static_cast<Copied*>(nullptr), exception,
                fmt::format("rank {}: {}", rank, exception.what()));
    throw;
  }
}

}  // namespace fsdp
