/// @file
/// The rules of the house. Each returns the places that break it, "path:line: what", so that an
/// empty list is a tidy house.
#pragma once

#include "structure/source_tree.h"

#include <string>
#include <vector>

namespace structure {

using Violations = std::vector<std::string>;

/// A file includes its own folder and lower floors, never higher ones and never a sibling on the
/// same floor. Task k sees `common` and the tasks up to k; apps see both, and of the other rooms of
/// apps those that a table names; only tests see tests.
/// Nobody includes a .cpp file, and a quoted name is always a file of this project. `apps/paper`
/// reaches no memory, thread, tape or file, not even through others.
Violations floor_violations(const std::vector<File>& files);

/// No source of `common`, `tasks`, `solutions` or `apps` is longer than `limit` lines.
Violations long_files(const std::vector<File>& files, std::size_t limit);

/// No line is wider than `limit` characters.
Violations wide_lines(const std::vector<File>& files, std::size_t limit);

/// No conditional compilation outside the places named in rules.cpp: what a machine has is decided
/// by which files CMake compiles.
Violations conditional_compilation(const std::vector<File>& files);

/// Headers use `#pragma once`, and all but those of `tests` say `@file` and `@ingroup` with their
/// own folder's group, which `groups` defines.
Violations header_heads(const std::vector<File>& files, const File& groups);

/// A source of the product that has a header of its name includes that first: so whatever compiles
/// it shows that the header includes what it needs.
Violations own_header_later(const std::vector<File>& files);

/// The name of a test case has no semicolon: CMake would cut it in two, and run neither half. It
/// does not begin with a dash either: the test program would take it for an option.
Violations bad_names(const std::vector<File>& files);

/// Nothing is left unfinished: no TODO, FIXME or XXX, but for the steps the tasks are made of.
Violations unfinished(const std::vector<File>& files);

/// `make something` in a text names a target of the Makefile.
Violations unknown_make_targets(const std::vector<File>& texts, const File& makefile);

/// Relative links and `folder/…` names in a text exist below `root`.
Violations dead_paths(const std::vector<File>& texts, const std::filesystem::path& root);

}  // namespace structure
