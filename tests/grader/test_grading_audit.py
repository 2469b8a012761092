"""Tests of the object audit and of the source check, on tiny objects compiled here."""

import copy
import platform
import shutil
import subprocess
import tempfile
import types
import unittest
from pathlib import Path

import course_path  # noqa: F401  must come first
import audit
import build_submission
import jail
import manifest
import object_file
import policy
import source_check
import unpack
from trusted import Provided, Reference, Trusted, TrustedError, provided_before, system_symbols

TASK = types.SimpleNamespace(number=3, folder="task3_forward", files=("forward.cpp",))
GXX = shutil.which("g++")
# How a compiler begins what it prints of /stage/x.cpp.
BEGIN = '# 0 "/stage/x.cpp"\n# 0 "<built-in>"\n# 0 "<command-line>"\n# 1 "/stage/x.cpp"\n'
REFERENCE = """
    #include <string>
    #include <vector>
    struct Unit { void start(); virtual void finish(); virtual ~Unit() {} };
    void earlier(int);
    void Unit::start() { earlier(1); }
    void Unit::finish() { std::vector<std::string> names(3, "x"); earlier(int(names.size())); }
"""


@unittest.skipUnless(GXX and shutil.which("addr2line"), "needs g++ and binutils")
class Objects(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = Path(cls.folder.name)
        reference = cls.compile("reference", REFERENCE)
        taken = cls.compile("library", "void earlier(int) {} void later_one(int) {}\n"
                            "namespace fsdp { struct MemoryTracker { void on_free(long); };"
                            "void MemoryTracker::on_free(long) {} }")
        provided = {s.name: Provided("device/memory_tracker", True)
                    for s in object_file.ObjectFile(taken.read_bytes()).symbols if s.exported}
        cls.trusted = Trusted(3, Reference.of([object_file.ObjectFile(reference.read_bytes())]),
                              provided, system_symbols(cls.root))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def compile(cls, name, text, *options):
        source = cls.root / f"{name}.cpp"
        source.write_text(text, encoding="utf-8")
        path = cls.root / f"{name}.o"
        subprocess.run([GXX, "-std=c++20", "-O1", "-g", *options, "-c", str(source), "-o",
                        str(path)], check=True)
        return path

    def audit(self, text, *options):
        return audit.audit_object(self.compile("submitted", text, *options), TASK,
                                  trusted=self.trusted)

    def assert_refused(self, rule, pattern, text, *options):
        found = [each for each in self.audit(text, *options) if each.rule == rule]
        self.assertTrue(found, f"nothing found by the rule {rule}")
        self.assertRegex("\n".join(map(str, found)), pattern)
        return found

    def test_a_library_compiled_together_cannot_tell_its_files_apart(self):
        folder = self.root / "build" / "common" / "device"
        folder.mkdir(parents=True)
        for name, refused in (("storage.cpp.o", False), ("unity_0_cxx.cxx.o", True)):
            shutil.copy(self.compile("given", "void given() {}"), folder / name)
            subprocess.run(["ar", "rcs", str(folder / "libfsdp_device.a"), str(folder / name)],
                           check=True)
            if refused:
                with self.assertRaisesRegex(TrustedError, "Turn CMAKE_UNITY_BUILD off"):
                    provided_before(1, folder.parent.parent)
            else:
                found = provided_before(1, folder.parent.parent)
                self.assertEqual([each.member for each in found.values()], ["device/storage"])

    def test_the_reference_passes(self):
        self.assertEqual(self.audit(REFERENCE), [])
        self.assertEqual(audit.missing_definitions([self.root / "submitted.o"], self.trusted), [])

    def test_other_ways_pass(self):
        more = """
            #include <algorithm>
            #include <cmath>
            #include <functional>
            #include <iostream>
            #include <map>
            #include <memory>
            #include <sstream>
            namespace {
            constexpr int kNumbers[] = {1, 2, 3};
            const char* const kNames[] = {"a", "b"};
            struct Helper { virtual int go() { return 1; } virtual ~Helper() = default; };
            }
            namespace fsdp { struct Free { int inlined() { return 2; } }; }
            static double sum(const std::vector<double>& all) {
              std::map<int, std::string> names; names[3] = kNames[0];
              std::ostringstream out; out << names[3] << std::sqrt(all[0]) << kNumbers[1];
              std::cout << out.str() << '\\n';
              auto helper = std::make_shared<Helper>();
              std::function<int()> call = [helper] {
                return helper->go() + fsdp::Free().inlined(); };
              return call();
            }
        """
        used = REFERENCE.replace("earlier(1);", "earlier(int(sum({1.0})));")
        head, _, tail = used.partition("void Unit::start")
        self.assertEqual(self.audit(head + more + "void Unit::start" + tail), [])

    def test_instructions_that_call_the_system(self):
        arm = platform.machine() in ("aarch64", "arm64")
        calls = ["svc #0"] if arm else ["syscall", "sysenter", "int $0x80"]
        for call in calls:
            found = self.assert_refused("call", "calls the system itself", REFERENCE.replace(
                "earlier(1);", f'earlier(1);\nasm volatile("{call}");'))
            self.assertRegex(found[0].where, r"submitted\.cpp:7$")
        if not arm:  # a number, and how far to jump, may look like one
            self.assertEqual(self.audit(REFERENCE.replace(
                "earlier(1);", "volatile int x = 0x80cd050f; earlier(x);")), [])

    def test_helpers_outside_an_anonymous_namespace(self):
        found = self.assert_refused("interface", r"helper\(int\).*anonymous",
                                    REFERENCE + "int helper(int x) { return x; }")
        self.assertRegex(found[0].where, r"submitted\.cpp:8$")

    def test_a_missing_definition_is_named(self):
        text = REFERENCE.replace("void Unit::start() { earlier(1); }", "")
        path = self.compile("submitted", text)
        found = audit.missing_definitions([path], self.trusted)
        self.assertIn("Unit::start()", str(found))

    def test_taking_over(self):
        self.assert_refused("takeover", r"later_one", REFERENCE + "void later_one(int) {}")
        self.assert_refused("takeover", r"memcmp", REFERENCE + '#include <cstddef>\nextern "C" int '
                            "memcmp(const void*, const void*, std::size_t) noexcept { return 0; }")
        self.assert_refused("takeover", r"operator new", REFERENCE + "void* operator new("
                            "std::size_t) { return nullptr; }", "-w")
        self.assert_refused("takeover", r"later_one.*memory_tracker", REFERENCE +
                            "inline void later_one(int) { earlier(5); }"
                            "void use() { later_one(1); }",
                            "-fno-inline")
        self.assert_refused("weak", r"declared weak",
                            REFERENCE + "__attribute__((weak)) void odd() {}")
        self.assert_refused("takeover", r"steady_clock::now", REFERENCE + """
            #include <chrono>
            [[gnu::noinline]] inline std::chrono::steady_clock::time_point
            std::chrono::_V2::steady_clock::now() noexcept { return {}; }
            static long use() {
              return std::chrono::steady_clock::now().time_since_epoch().count(); }
            struct Other { virtual long go(); }; long Other::go() { return use(); }""")

    def test_running_before_main(self):
        before = "#include <cstdlib>\n"
        self.assert_refused("initializer", r"built before main.*(\n|.)*", before + REFERENCE +
                            "static const int kGone = (std::exit(0), 0);"
                            "void use() { earlier(kGone); }")
        self.assert_refused("initializer", r"to run before main", REFERENCE +
                            "__attribute__((constructor)) static void first() { earlier(2); }")
        self.assert_refused("initializer", r"before main, or after", REFERENCE +
                            "static void first() { earlier(2); }"
                            '__attribute__((section(".preinit_array"), used)) '
                            "static void (*const kEarly)() = first;")
        self.assert_refused("initializer", r"before main, or after", REFERENCE +
                            "__attribute__((destructor)) static void last() { earlier(2); }")
        self.assert_refused("ifunc", r"chosen at run time", REFERENCE +
                            'extern "C" { static void (*choose())() { return nullptr; }'
                            'void chosen() __attribute__((ifunc("choose"))); }')

    def test_iostream_brings_an_initializer_of_its_own(self):
        self.assertEqual(self.audit("#include <iostream>\n" + REFERENCE), [])

    def test_data_that_can_be_written(self):
        for text, name in (("static int calls; void Unit::start() { earlier(++calls); }", "calls"),
                           ("void Unit::start() { static int calls = 5; earlier(calls++); }",
                            "calls"),
                           ("static thread_local int calls; void Unit::start() { earlier(++calls);"
                            "}", "calls"),
                           ("void Unit::start() { static const std::string name(99, 'x');"
                            "earlier(name[3]); }", "name")):
            source = REFERENCE.replace("void Unit::start() { earlier(1); }", text)
            found = self.assert_refused("data", name, source)
            self.assertRegex(str(found[0]), r"spare member")

    def test_calls(self):
        for call, pattern in (
                ("fopen(\"x\", \"r\")", "fopen"), ("_exit(0)", "_exit"), ("fork()", "fork"),
                ("dlsym(nullptr, \"x\")", "dlsym"), ("syscall(1)", "syscall"),
                ("earlier(int(reinterpret_cast<long>(malloc(5))))", "Storage"),
                ("std::exit(1)", "exit"),
                ("std::ifstream(\"/etc/passwd\").get()", "files"),
                ("std::thread([] {}).join()", "thread"),
                ("std::filesystem::exists(\"x\")", "files"),
                ("std::random_device()()", "Generator"),
                ("std::getenv(\"HOME\")", "getenv"), ("nowhere()", "library"),
                ("fsdp::MemoryTracker().on_free(1)", "memory tracker")):
            head = """
                #include <cstdio>
                #include <cstdlib>
                #include <dlfcn.h>
                #include <filesystem>
                #include <fstream>
                #include <random>
                #include <thread>
                #include <unistd.h>
                void nowhere();
                namespace fsdp { struct MemoryTracker { void on_free(long); }; }
            """
            source = head + REFERENCE.replace("earlier(1);", f"static_cast<void>({call});")
            with self.subTest(call):
                self.assert_refused("call", pattern, source)

    def test_what_is_no_object(self):
        path = self.root / "text.o"
        path.write_text("hello", encoding="utf-8")
        self.assertEqual(audit.audit_object(path, TASK, trusted=self.trusted)[0].rule, "object")


class Names(unittest.TestCase):
    def test_what_overlap_is_judged_by(self):
        for name, member in (("fsdp::Context::record(fsdp::Event)", "device/context"),
                             ("fsdp::Trace::record(fsdp::Event)", "base/trace"),
                             ("fsdp::EventObserverScope::EventObserverScope(fsdp::EventObserver&)",
                              "device/context"),
                             ("fsdp::nn::CallObserverScope::~CallObserverScope()",
                              "nn/module")):
            with self.subTest(name):
                self.assertTrue(policy.why_not_library(name, member, 3))
        self.assertFalse(policy.why_not_library("fsdp::Context::current()", "device/context", 3))

    def test_what_moves_the_bytes_of_ranks_is_no_part_of_an_answer(self):
        open_to_all = {"process_group", "work", "rank_error"}
        for path in (manifest.ROOT / "common" / "comm").rglob("*.cpp"):
            refused = policy.why_not_library("fsdp::anything()", f"comm/{path.stem}", 3)
            with self.subTest(path):
                self.assertEqual(path.stem not in open_to_all, bool(refused))

    def test_templates(self):
        self.assertTrue(policy.is_template("std::vector<int>::push_back(int)"))
        self.assertFalse(policy.is_template("std::chrono::_V2::steady_clock::now()"))
        self.assertFalse(policy.is_template("fsdp::operator<(fsdp::A, std::vector<int>)"))

    def test_paths_are_no_files(self):
        self.assertEqual(policy.why_not_standard("std::filesystem::__cxx11::path::~path()", 3), "")
        for name, task, word in (
                ("fsdp::io::check_hf_parameters(fsdp::io::SafetensorsReader const&)", 7, ""),
                ("fsdp::io::CheckpointFolder::latest() const", 7, ""),
                ("fsdp::io::remove_tree(std::filesystem::__cxx11::path const&)", 7, ""),
                ("fsdp::io::check_hf_parameters(fsdp::io::SafetensorsReader const&)", 4, "files"),
                ("fsdp::io::load_hf_folder(fsdp::nn::TransformerLM&)", 7, "files")):
            self.assertIn(word, policy.why_not_library(name, "io/hf_folder.cpp.o", task))
            self.assertEqual(not word, not policy.why_not_library(name, "io/hf_folder.cpp.o", task))
        status = "std::filesystem::status(std::filesystem::__cxx11::path const&)"
        self.assertEqual(policy.why_not_standard(status, 7), "")
        self.assertIn("files", policy.why_not_standard(status, 6))
        self.assertIn("files", policy.why_not_standard(
            "std::filesystem::create_directories(std::filesystem::__cxx11::path const&)", 3))


class Sources(unittest.TestCase):
    def refused(self, text, task=TASK):
        found = source_check.check_text(text.encode(), "x.cpp", task, manifest.ROOT).refused
        return "\n".join(map(str, found))

    def test_the_references_pass(self):
        for task in manifest.load().tasks:
            for name in task.files:
                path = manifest.ROOT / "solutions" / task.folder / name
                if path.is_file():
                    self.assertEqual(source_check.check_text(
                        path.read_bytes(), name, task, manifest.ROOT),
                        source_check.Checked([], []))

    def test_includes(self):
        self.assertEqual(self.refused('#include <vector>\n#include "task3_forward/forward.h"\n'
                                      '#include "base/check.h"\n#include <fmt/format.h>\n'
                                      '#include "task2_flat_parameter/flat_parameter.h"\n'), "")
        for line in ("#include <unistd.h>", "#include <thread>", '#include "/etc/passwd"',
                     '#include "../solutions/x.h"', "#include NAME", "%:include </etc/passwd>",
                     '#include "task4_backward/backward.h"', '#include "parallel/ddp.h"',
                     '#include "task3_forward/forward.cpp"', "#include <fstream>",
                     '# /* x */ include "/etc/passwd"', '#inc\\\nlude "/etc/passwd"',
                     '#include_next <vector>', '#embed "/etc/passwd"', '#import <vector>'):
            self.assertRegex(self.refused(line + "\n"), r"x\.cpp:1: ", line)

    def test_words(self):
        for line in ('asm("nop");', "__asm__(\"nop\");", "__attribute__((constructor)) void f();",
                     "[[gnu::section(\"x\")]] int x;", '#line 5 "y.cpp"', "#pragma weak f",
                     '_Pragma("weak f")'):
            self.assertRegex(self.refused(f"\n{line}\n"), r"x\.cpp:2: ", line)
        for line in ('const char* text = "asm(1)";', "// asm", "/* asm */", "int assembler;",
                     "#pragma once", "#pragma GCC diagnostic push", "[[maybe_unused]] int x;",
                     'auto raw = R"(asm " asm)";', "const int million = 1'000'000; char c = '\"';"):
            self.assertEqual(self.refused(line + "\n"), "", line)

    def test_character_literals_hide_nothing(self):
        for line in ("auto a = L'\"'; asm(\"nop\"); auto b = L'\"';",
                     "auto a = u8'\"'; asm(\"nop\"); auto b = u8'\"';",
                     "int n = 1'0; asm(\"nop\"); char c = '0';"):
            self.assertIn("assembler", self.refused(line + "\n"), line)

    def test_raw_strings_over_several_lines(self):
        self.assertIn("raw string", self.refused('auto a = R"(\n)";\n'))
        self.assertRegex(self.refused('int x;\nauto a = R"x(\n'), r"x\.cpp:2: a raw string")
        source = Path("/stage/x.cpp")
        text = (BEGIN + 'auto a = R"x( )x\\\n" )x"; asm("nop"); auto b = "";\n'
                'auto c = R"(\n# 1 "/usr/include/a.h"\n)"; asm("nop");\n')
        found = source_check.check_preprocessed(text, source, "x.cpp", [Path("/usr/include")])
        self.assertIn("raw string", str(found[0]))

    def test_what_is_never_closed_takes_no_longer(self):
        # In time that grows with the square of the text any of these would take minutes.
        limits = copy.copy(build_submission.CHECK)
        program = Path(source_check.__file__).read_bytes()
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            folder.chmod(0o755)
            (folder / "source_check.py").write_bytes(program)
            for i, piece in enumerate(('"', "'", '"a', '"\\', "/*", "*/", 'R"(', 'R"x(', "L'\"",
                                       "1'", "[[ ", "__attribute__((", "\\ ", "#pragma GCC unroll ",
                                       "*(", ">( ", "stdout)", "std ::", "terminate ", "(a*)")):
                file = folder / f"{i}.cpp"
                file.write_text(piece * (unpack.MOST_BYTES // len(piece)), encoding="utf-8")
                for words in (("text", "--task", 3, "--folder", TASK.folder),
                              ("preprocessed", "--source", file)):
                    ended = jail.run([jail.find_program("python3"), "-I", "-S",
                                      folder / "source_check.py", *words, file, "--where", "x.cpp"],
                                     limits, keep=[folder])
                    self.assertEqual((ended.kind, ended.code), ("exited", 0), f"{piece} {words[0]}")
                    source_check.from_json(ended.out.decode())

    def test_line_markers(self):
        for line in ('# 1 "/usr/include/a.h"', '#1 "a.h" 3', '  #\t7', '%: 1 "a.h"',
                     '# /* x */ 1 "a.h"',
                     '#line 5 "a.h"', '#li\\\nne 5', '#\\\n 1 "a.h"', '# \\\u006cine 5', '#foo',
                     '/* x */ # 1 "a.h"', '#\\\f\n1 "a.h"'):
            self.assertRegex(self.refused(f"int x;\n{line}\n"), r"x\.cpp:2: ", line)
        self.assertRegex(self.refused('\ufeff# 1 "a.h"\n'), r"x\.cpp:1: a line marker")
        self.assertRegex(self.refused('// x\r/*\n# 1 "a.h"\n// */\n'),
                         r"x\.cpp:1: a carriage return")
        for text in ("#\n# \n", "// # 1. First\n/*\n# 1 \"a.h\"\n*/\n",
                     "#if 1\r\n#else\r\n#endif\r\n",
                     "#ifndef A\n#define A \\\n  1\n#undef A\n#elif 1\n#endif\n"):
            self.assertEqual(self.refused(text), "", text)

    def test_raw_strings_that_are_spliced(self):
        # Joined it is one line; a compiler puts the ends of its lines back.
        self.assertIn("raw string", self.refused('auto a = R"(\\\n# 1 "/usr/include/a.h"\\\n)";\n'))

    def test_marks_that_are_not_the_compilers(self):
        source, allowed = Path("/stage/x.cpp"), [Path("/stage"), Path("/usr/include")]
        enter = '#include "a.h"\n# 1 "/stage/x.cpp"\n# 1 "/stage/a.h" 1\nint a;\n'
        back = '# 2 "/stage/x.cpp" 2\n'

        def said(text):
            found = source_check.check_preprocessed(BEGIN + text, source, "x.cpp", allowed)
            return "\n".join(map(str, found))
        self.assertEqual(said(enter + back + 'int b;\n# 9 "/stage/x.cpp"\nint c;\n'), "")
        for forged in ('# 1 "/usr/include/a.h"\n', '# 1 "/usr/include/a.h" 1 3 4\n',
                       '#include <b.h>\n', '# 3 "/usr/include/a.h" 2\n',
                       '#include "b.h"\n# 1 "/stage/x.cpp"\n# 1 "/stage/a.h" 1\n',
                       '#include "a.h"\nint b;\n# 1 "/stage/a.h" 1\n'):
            text = said(enter + back + forged + 'asm ("syscall");\n')
            self.assertIn("assembler", text, forged)
            self.assertEqual("line marker" in text, forged != "#include <b.h>\n", forged)
        self.assertIn("line marker", said(enter + '# 2 "/usr/include/b.h" 2\n'))

    @unittest.skipUnless(GXX, "needs g++")
    def test_marks_of_the_compiler(self):
        # The compiler's own output, in a folder whose name it must quote.
        with tempfile.TemporaryDirectory(prefix='a "b" é\\# ') as name:
            folder = Path(name)
            source = folder / "x.cpp"
            (folder / "own.h").write_text("#include <string>\nint own;\n", encoding="utf-8")
            good = '#include "own.h"\n#include <vector>\n#include "own.h"\n\n\n\n\n\n\n\n\nint x;\n'
            for compiler in filter(None, (GXX, shutil.which("clang++"))):
                for text, lines in ((good, []), (good + "P(as, m)(\"nop\");\n", [13]),
                                    (good + '# 1 "/usr/include/a.h"\nP(as, m)("nop");\n', [0, 13])):
                    source.write_text("#define P(a, b) a##b\n" + text, encoding="utf-8")
                    done = subprocess.run([compiler, "-std=c++20", "-g", "-E", "-dI", str(source)],
                                          capture_output=True, check=True)
                    found = source_check.check_preprocessed(
                        done.stdout.decode("utf-8", "replace"), source, "x.cpp",
                        [folder, *source_check.SYSTEM_FOLDERS])
                    if lines == [0, 13]:
                        self.assertEqual([each.text[:13] for each in found],
                                         ["a line marker", "assembler is "])
                    else:
                        self.assertEqual([int(each.where.split(":")[1]) - 1 for each in found],
                                         lines)

    def test_the_inside_of_streams(self):
        for line in ("stdout->_fileno = 3;", "(stdout)->x = 3;", "(*stdout).x = 3;", "stdout[0].x;",
                     "auto a = static_cast<void*>(stdout);", "auto a = (char*)stderr;",
                     "auto a = (char*)(stderr);", "f->_chain;", "f->_IO_buf_base;", "_IO_FILE* f;",
                     "auto a = reinterpret_cast<std::uintptr_t>( (stdin));"):
            self.assertIn("stdin, stdout and stderr", self.refused(f"{line}\n"), line)
        for line in ('std::fprintf(stderr, "x");', "FILE* out = loud ? stdout : stderr;",
                     "f(stdout);",
                     'fmt::print(stderr, "{}", a > b);', 'if (x) std::fputs("->", stdout);',
                     'g(a[0], stdout, b->c);', "int fileno_ = 1, chain = 2;"):
            self.assertEqual(self.refused(f"{line}\n"), "", line)

    def test_ending_the_program(self):
        for line in ("std::terminate();", "using std::terminate;", "terminate ();"):
            self.assertIn("does not end the program", self.refused(f"{line}\n"), line)
        for line in ("loop.terminate();", "loop->terminate();", "int terminate = 1;",
                     "Loop::terminate();"):
            self.assertEqual(self.refused(f"{line}\n"), "", line)

    def test_relabeling_is_told_and_not_refused(self):
        checked = source_check.check_text(b"#define private public\n", "x.cpp", TASK, manifest.ROOT)
        self.assertEqual(checked.refused, [])
        self.assertIn("private", str(checked.noted[0]))

    def test_after_the_preprocessor(self):
        source = Path("/stage/x.cpp")
        text = (BEGIN + '#include <a.h>\n# 1 "/stage/x.cpp"\n# 1 "/usr/include/a.h" 1\nasm("x");\n'
                '# 2 "/stage/x.cpp" 2\n')
        allowed = [Path("/stage"), Path("/usr/include")]
        self.assertEqual(source_check.check_preprocessed(text, source, "x.cpp", allowed), [])
        found = source_check.check_preprocessed(text + 'int y;\nasm ("y");\n', source, "x.cpp",
                                                allowed)
        self.assertEqual(found[0].where, "x.cpp:3")
        found = source_check.check_preprocessed('# 1 "/etc/passwd" 1\nroot\n', source, "x.cpp",
                                                allowed)
        self.assertIn("/etc/passwd", found[0].text)

    def test_headers_of_the_system(self):
        source = Path("/stage/x.cpp")
        for header in ("/usr/include/c++/14/vector", "/usr/lib/gcc/x86_64-linux-gnu/14/include/a.h",
                       "/usr/lib/linux/uapi/x86/asm/types.h", "/usr/lib/llvm-19/lib/clang/19/a.h"):
            self.assertEqual(source_check.check_preprocessed(
                f'# 1 "{header}" 1\nint x;\n', source, "x.cpp", source_check.SYSTEM_FOLDERS), [])


if __name__ == "__main__":
    unittest.main()
