#include "support/cuda_on_host/symbols.h"

#include <cxxabi.h>
#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

namespace cuda_on_host {
namespace {

struct Program {
  Address base = 0, begin = 0, end = 0;
  Address local_begin = 0;  ///< of the calling thread's thread_local variables
  std::size_t local_nbytes = 0;
};

Program find_program() {
  Program program;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* result) {
        Program& found = *static_cast<Program*>(result);
        found.base = info->dlpi_addr;
        found.local_begin = reinterpret_cast<Address>(info->dlpi_tls_data);
        found.begin = SIZE_MAX;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& part = info->dlpi_phdr[i];
          const Address begin = info->dlpi_addr + part.p_vaddr;
          if (part.p_type == PT_TLS) found.local_nbytes = part.p_memsz;
          if (part.p_type != PT_LOAD) continue;
          found.begin = std::min(found.begin, begin);
          found.end = std::max(found.end, begin + part.p_memsz);
        }
        return 1;  // the first is the program
      },
      &program);
  return program;
}

const Program& program() {
  static thread_local const Program found = find_program();
  return found;
}

struct Symbol {
  std::string name;
  Address begin;
  std::size_t nbytes;
};

struct Symbols {
  std::vector<Symbol> functions;  // relative to the program's base
  std::vector<Symbol> arrays;  // thread_local variables of functions, relative to the first local
};

std::vector<char> bytes_of_program() {
  std::ifstream file("/proc/self/exe", std::ios::binary | std::ios::ate);
  std::vector<char> bytes(static_cast<std::size_t>(std::max<std::streamoff>(0, file.tellg())));
  file.seekg(0);
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

/// From the file of this program; arrays in the order of their addresses.
Symbols read_symbols() {
  const std::vector<char> bytes = bytes_of_program();
  Symbols found;
  ElfW(Ehdr) head;
  if (bytes.size() < sizeof head) return found;
  std::memcpy(&head, bytes.data(), sizeof head);
  std::vector<ElfW(Shdr)> sections(head.e_shnum);
  std::memcpy(sections.data(), bytes.data() + head.e_shoff, head.e_shnum * sizeof(ElfW(Shdr)));
  for (const auto& section : sections) {
    if (section.sh_type != SHT_SYMTAB) continue;
    const char* names = bytes.data() + sections[section.sh_link].sh_offset;
    for (std::size_t at = 0; at < section.sh_size; at += sizeof(ElfW(Sym))) {
      ElfW(Sym) symbol;
      std::memcpy(&symbol, bytes.data() + section.sh_offset + at, sizeof symbol);
      const int type = ELF64_ST_TYPE(symbol.st_info);
      if (symbol.st_size == 0 || (type != STT_FUNC && type != STT_TLS)) continue;
      const char* name = names + symbol.st_name;
      // Variables of functions have such names. Others are thread_local for other reasons.
      const bool is_of_function = std::strncmp(name, "_ZZ", 3) == 0;
      if (type == STT_TLS && !is_of_function) continue;
      (type == STT_FUNC ? found.functions : found.arrays)
          .push_back({name, symbol.st_value, symbol.st_size});
    }
  }
  std::ranges::sort(found.arrays, {}, &Symbol::begin);
  return found;
}

const Symbols& symbols() {
  static const Symbols found = read_symbols();
  return found;
}

const Symbol* find(const std::vector<Symbol>& all, Address address) {
  for (const Symbol& each : all) {
    if (address >= each.begin && address < each.begin + each.nbytes) return &each;
  }
  return nullptr;
}

std::string readable(const std::string& name) {
  int status = 0;
  char* text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  std::string result = text != nullptr ? text : name;
  std::free(text);
  return result;
}

}  // namespace

std::string name_of_function(const void* function) {
  const auto address = reinterpret_cast<Address>(function) - program().base;
  const Symbol* found = find(symbols().functions, address);
  return found != nullptr ? readable(found->name) : "a kernel";
}

std::string SharedArray::name() const { return readable(*symbol); }

std::optional<SharedArray> last_shared_array_before(Address address) {
  const Program& here = program();
  const std::vector<Symbol>& arrays = symbols().arrays;
  if (address < here.local_begin) return std::nullopt;
  const auto after =
      std::ranges::upper_bound(arrays, address - here.local_begin, {}, &Symbol::begin);
  if (after == arrays.begin()) return std::nullopt;
  const Symbol& last = *std::prev(after);
  return SharedArray{&last.name, here.local_begin + last.begin, last.nbytes};
}

std::optional<SharedArray> shared_array_at(Address address) {
  const auto found = last_shared_array_before(address);
  return found && address < found->begin + found->nbytes ? found : std::nullopt;
}

bool is_thread_local(Address address) {
  const Program& here = program();
  return address >= here.local_begin && address < here.local_begin + here.local_nbytes;
}

bool is_in_program(Address address) {
  return address >= program().begin && address < program().end;
}

}  // namespace cuda_on_host
