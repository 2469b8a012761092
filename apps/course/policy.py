"""What the audit allows and denies by name. A symbol the reference itself uses is always allowed.

The lists are short on purpose: of the C library only what arithmetic, strings and printing need; of
the standard library all but what reads files, starts threads or ends the program.
"""

from __future__ import annotations

import re

# The compiler's own initializer of a file that includes <iostream>.
INITIALISER_USES = {"_ZNSt8ios_base4InitC1Ev", "_ZNSt8ios_base4InitD1Ev", "__cxa_atexit",
                    "__dso_handle", "_ZStL8__ioinit"}
KEPT = {"_ZStL8__ioinit"}

_C = set("""
memcpy memmove memset memcmp memchr bcmp strlen strcmp strncmp strchr strrchr
__memcpy_chk __memmove_chk __memset_chk __strcpy_chk
strtol strtoul strtoll strtoull strtod strtof strtold __errno_location
printf puts putchar fprintf fputs fputc fwrite fflush snprintf vsnprintf stdout stderr
__printf_chk __fprintf_chk __snprintf_chk __vsnprintf_chk
abs labs llabs div ldiv lldiv
pthread_mutex_lock pthread_mutex_unlock pthread_mutex_trylock
__stack_chk_fail __assert_fail __libc_single_threaded __dso_handle _GLOBAL_OFFSET_TABLE_
__gxx_personality_v0 _Unwind_Resume __tls_get_addr __dynamic_cast
__cxa_throw __cxa_rethrow __cxa_begin_catch __cxa_end_catch __cxa_allocate_exception
__cxa_free_exception __cxa_get_exception_ptr __cxa_init_primary_exception __cxa_pure_virtual
__cxa_deleted_virtual __cxa_bad_cast __cxa_bad_typeid __cxa_throw_bad_array_new_length
__cxa_guard_acquire __cxa_guard_release __cxa_guard_abort __cxa_atexit __cxa_call_unexpected
__cxa_call_terminate __udivti3 __divti3 __umodti3 __modti3
""".split())
_MATH = re.compile(
    r"(a?(cos|sin|tan)h?|atan2|exp|exp2|expm1|log|log2|log10|log1p|logb|ilogb|sqrt|cbrt|hypot|pow|"
    r"floor|ceil|trunc|round|l?lround|rint|l?lrint|nearbyint|fma|fmod|remainder|ldexp|frexp|modf|"
    r"scalbn|scalbln|copysign|nan|nextafter|fmin|fmax|fdim|fabs|erf|erfc|tgamma|lgamma|sincos)"
    r"[fl]?")

# What of the library is not for a task's code: (members, why).
_MEMBERS = [
    (r"comm/(?!(process_group|work|rank_error)$)",
     "it is inside the backend; use ProcessGroup"),
    (r"device/(allocator|free_blocks|thread_pool)", "it is inside the device; use Storage"),
    (r"io/",
     "it reads or writes files"),
    (r"parallel/", "the baselines are not an answer"),
]
# What a task needs of those members all the same. Where files are, the jail decides what is open.
_NEEDED = {
    7: r"fsdp::io::(check_hf_parameters\b|CheckpointFolder::|SliceReader::check\b|"
       r"(create_folder|remove_tree)\b)",
}
# The same of the standard library: to clear a temporary folder by hand, and not by begin_folder().
_NEEDED_STANDARD = {
    7: r"std::filesystem::(exists|status)\b",
}
_FUNCTIONS = [
    (r"fsdp::MemoryTracker::(on_alloc|on_free|recategorize|reassign|enter_module|leave_module|"
     r"set_logging|reset_peak)\b", "only given code writes the memory tracker"),
    (r"fsdp::(Trace::(record|clear|set_recording)|Context::record)\b",
     "only given code writes the trace"),
    (r"fsdp::(EventObserverScope|nn::CallObserverScope)::", "it belongs to the grader"),
    (r"fsdp::todos_reached", "it belongs to the grader"),
]

_STANDARD = [
    (r"std::(j?thread|this_thread|__thread|async|__future_base|__basic_future|promise|"
     r"_V2::__async|__atomic_futex)", "a rank is one thread"),
    (r"std::(__cxx11::)?basic_([io]?fstream|filebuf|file_stdbuf)|std::__basic_file|"
     r"__gnu_cxx::(stdio_filebuf|stdio_sync)", "it reads or writes files"),
    (r"std::filesystem::(?!__cxx11::path\b|operator|_[A-Z]|__detail|__throw)",
     "it reads or writes files"),
    (r"std::(exit|_Exit|quick_exit|abort|atexit|at_quick_exit|set_terminate|set_unexpected|"
     r"set_new_handler|get_new_handler)\b", "a submission does not end the program"),
    (r"std::(getenv|system|signal|raise)\b", "it reaches outside the program"),
    (r"std::random_device", "what it draws differs in every run; use the Generator"),
    (r"std::locale::global", "it changes the whole program"),
    (r"std::pmr::.*(default_resource|new_delete_resource)", "it changes the whole program"),
]
_NAMESPACES = re.compile(
    r"(std|__gnu_cxx|__cxxabiv1|fmt)::|operator (new|delete)\b|"
    r"(vtable|VTT|typeinfo|typeinfo name|guard variable|construction vtable) for "
    r"(\w+ )*(std|__cxxabiv1|__gnu_cxx|fmt)::|(typeinfo|typeinfo name) for [a-z_ 0-9]+[*]?$")
_FMT_FILES = re.compile(r"fmt::(v[0-9]+::)?(file|ostream|buffered_file|pipe|detail::file_buffer)\b")


def compilers_own(name: str) -> bool:
    """Weak symbols that the compiler makes by itself."""
    return name.startswith(("DW.ref.", "__clang_call_terminate", "__x86.get_pc_thunk"))


def is_template(name: str) -> bool:
    """Whether a demangled name is an instantiation: of a function or of a class."""
    head = re.sub(r"operator(<<|<=>|<=|<|>>|>=|>|->)", "operator", name).split("(")[0]
    return "<" in head


def why_not_library(name: str, member: str, task: int) -> str:
    """Why a function of the library, or of an earlier task, is not for a submission; or ""."""
    if task in _NEEDED and re.match(_NEEDED[task], name):
        return ""
    for pattern, why in _FUNCTIONS:
        if re.match(pattern, name):
            return why
    for pattern, why in _MEMBERS:
        if re.match(pattern, member):
            return why
    return ""


def why_not_standard(name: str, task: int) -> str:
    """The same for what is neither of the library nor of an earlier task, and is C++."""
    # The result type of a template comes first: look at the name itself.
    bare = re.sub(r"^(typeinfo( name)?|vtable|VTT|construction vtable|guard variable) for ", "",
                  name)
    if task in _NEEDED_STANDARD and re.match(_NEEDED_STANDARD[task], bare):
        return ""
    for pattern, why in _STANDARD:
        if re.search(rf"(^|[ *&]){pattern}", bare):
            return why
    if _FMT_FILES.search(bare):
        return "it reads or writes files"
    if _NAMESPACES.match(name) or re.match(r"[^(]*\b(std|fmt|__gnu_cxx)::", name):
        return ""
    if name.startswith("fsdp::") or " for fsdp::" in name:
        return (f"neither the library nor a task before {task} defines it (a task calls earlier "
                "tasks only)")
    return "it is not of the course's library"


def why_not_c(name: str) -> str:
    """The same for C functions."""
    if name in _C or _MATH.fullmatch(name) or name.startswith("__isoc23_strto"):
        return ""
    if re.fullmatch(r"(malloc|calloc|realloc|free|aligned_alloc|posix_memalign|mmap|sbrk)", name):
        return "memory comes from Storage, or from the standard containers"
    if name.startswith(("cblas_", "omp_", "GOMP_", "openblas_")):
        return "use the tensor operations"
    return "of the C library only arithmetic, strings and printing are for a submission"
