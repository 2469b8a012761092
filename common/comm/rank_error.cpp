#include "comm/rank_error.h"

#include "base/check.h"

#include <fmt/format.h>

#include <new>
#include <stdexcept>
#include <string>
#include <typeinfo>

namespace fsdp {
namespace {

// Of exactly that type: of what is derived from it we do not know how to make another one.
template <class... Types>
void throw_alike(const std::exception& error, const std::string& what) {
  const auto try_one = [&]<class Type>(const Type*) {
    if (typeid(error) == typeid(Type)) throw Type(what);
  };
  (try_one(static_cast<const Types*>(nullptr)), ...);
}

}  // namespace

void rethrow_from_rank(int rank, const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::bad_alloc&) {
    fail("rank {}: out of memory (std::bad_alloc); use a smaller model or fewer ranks", rank);
  } catch (const std::exception& exception) {
    throw_alike<Error, InputError, StorageError, std::runtime_error, std::logic_error,
                std::invalid_argument, std::out_of_range>(
        exception, fmt::format("rank {}: {}", rank, exception.what()));
    throw;
  }
}

}  // namespace fsdp
