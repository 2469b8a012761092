"""install.sh on machines that lack things: what it installs, and what it says where it cannot."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

INSTALL = Path(__file__).resolve().parents[2] / "common/scripts/install.sh"
# Stand-ins for the package manager: `known` lists what its list holds, `log` what was called.
APT_CACHE = '#!/bin/sh\nfor last; do :; done\n! grep -qx "$last" {known} || echo "Package: $last"\n'
APT_GET = '#!/bin/sh\necho "$@" >>{log}\ncase "$*" in *update*) cat {late} >>{known} ;; esac\n'


class Install(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.bin = self.root / "bin"
        self.bin.mkdir()
        for tool in ("sh", "grep", "cat", "mktemp", "rm", "env", "uname",
                     "sed"):
            found = next(path for path in (Path("/usr/bin", tool), Path("/bin", tool))
                         if path.exists())
            (self.bin / tool).symlink_to(found)
        self.program("id", "#!/bin/sh\necho 0\n")

    def program(self, name: str, text: str) -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def apt(self, known: str, after_update: str = "") -> None:
        files = {name: self.root / name for name in ("known", "late", "log")}
        files["known"].write_text(known)
        files["late"].write_text(after_update)
        files["log"].write_text("")
        self.program("apt-cache", APT_CACHE.format(**files))
        self.program("apt-get", APT_GET.format(**files))

    def called(self) -> list[str]:
        return [line.removeprefix("-o Dpkg::Use-Pty=0 ").replace(
            "-y -q --no-install-recommends ", "") for line in
            (self.root / "log").read_text().splitlines()]

    def run_it(self, *groups: str, **more: str) -> tuple[int, str, str]:
        done = subprocess.run(["sh", INSTALL, *groups], check=False, capture_output=True, text=True,
                              timeout=60, env={"PATH": str(self.bin), **more,
                                               "TMPDIR": os.fspath(self.root)})
        return done.returncode, done.stdout, done.stderr

    def test_what_is_missing_is_installed_and_why(self) -> None:
        self.apt("gdb\n")
        code, said, _ = self.run_it("gdb")
        self.assertEqual((code, self.called()), (0, ["install gdb"]))
        self.assertRegex(said, r"Missing on this machine:\n  gdb +the debugger\n")

    def test_what_two_groups_need_is_installed_once(self) -> None:
        self.apt("g++\n")
        code, said, _ = self.run_it("compiler", "compiler")
        self.assertEqual((code, self.called(), said.count("g++ ")), (0, ["install g++"], 1))

    def test_an_old_list_is_updated_first(self) -> None:
        self.apt("", "gdb\n")
        code, _, _ = self.run_it("gdb")
        self.assertEqual((code, self.called()), (0, ["update", "install gdb"]))

    def test_what_the_system_does_not_have_is_named_with_the_remedy(self) -> None:
        self.apt("clang-format\n")
        code, _, said = self.run_it("gdb", "format")
        self.assertEqual((code, self.called()), (1, ["update"]))
        self.assertIn("do not include: gdb\n", said)
        self.assertIn("docker build", said)

    def test_nothing_is_installed_if_told_so(self) -> None:
        self.apt("gdb\n")
        code, _, said = self.run_it("gdb", INSTALL="no")
        self.assertEqual((code, self.called()), (1, []))
        self.assertIn("apt-get install -y -q --no-install-recommends gdb", said)

    def test_an_old_python_is_refused_with_the_remedy(self) -> None:
        for exit_code, good in ((0, True), (1, False)):
            self.program("python3", f'#!/bin/sh\n[ "$1" != --version ] || {{ echo Python 3.10.12;'
                                    f" exit 0; }}\nexit {exit_code}\n")
            code, _, said = self.run_it("course")
            self.assertEqual(code, 0 if good else 1)
            self.assertEqual(said.startswith("Python 3.10.12 is too old"), not good, said)
            self.assertEqual("docker build" in said, not good)

    def test_the_pages_style_is_only_wished_for(self) -> None:
        for name in ("doxygen", "dot", "python3"):
            self.program(name, "#!/bin/sh\n")
        nowhere = str(self.root / "nowhere")
        self.apt("")
        self.assertEqual(self.run_it("docs", AWESOME=nowhere), (0, "", ""))
        self.assertEqual(self.called(), [])
        self.apt("doxygen-awesome-css\n")
        self.assertEqual(self.run_it("docs", AWESOME=nowhere, INSTALL="no"), (0, "", ""))
        self.assertEqual(self.called(), [])
        self.assertEqual(self.run_it("docs", AWESOME=nowhere)[0], 0)
        self.assertEqual(self.called(), ["install doxygen-awesome-css"])


if __name__ == "__main__":
    unittest.main()
