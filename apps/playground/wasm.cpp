// The page's functions as a module of WebAssembly. Its C++ library has no exceptions: a throw is a
// call of `thrown`, which does not return. After it, the instance is not used again.
#include "playground/page.h"

#include <cstddef>
#include <cstdlib>
#include <exception>
#include <string>
#include <typeinfo>

extern "C" {

[[clang::import_name("thrown")]] void thrown(const char* text);

void* __cxa_allocate_exception(std::size_t nbytes) { return std::malloc(nbytes); }
void __cxa_free_exception(void* exception) { std::free(exception); }
// All that is thrown here derives from std::exception alone.
[[noreturn]] void __cxa_throw(void* exception, std::type_info*, void (*)(void*)) {
  thrown(static_cast<std::exception*>(exception)->what());
  std::abort();
}

/// Bytes for a text of the page, and its end.
[[clang::export_name("room")]] char* room(std::size_t nbytes) {
  static std::string text;
  text.assign(nbytes, '\0');
  return text.data();
}
[[clang::export_name("models")]] const char* models() {
  static const std::string json = fsdp::playground::models_json();
  return json.c_str();
}
[[clang::export_name("step")]] const char* step(const char* setting) {
  static std::string json;
  json = fsdp::playground::step_json(setting);
  return json.c_str();
}

}  // extern "C"
