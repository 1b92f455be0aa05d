// What `weft run` checks before it starts a program.
#pragma once

#include <string>

#include "weft/command.h"

namespace weft::cli {

// The folder with Weft's libibverbs.so.1 and librdmacm.so.1: beside this executable, in a build
// tree or an installation, or $WEFT_LIB_DIR/weft.
[[nodiscard]] Outcome<std::string> find_dropin_folder();

// The file that `name` stands for, as execvp() finds it.
[[nodiscard]] Outcome<std::string> find_program(const std::string& name);

// Whether the dynamic loader of `path` will take Weft's libraries: refuses programs that are
// static, for another processor, or that gain privileges when they start. A script is judged by its
// interpreter.
[[nodiscard]] Outcome<void> check_program(const std::string& path);

}  // namespace weft::cli
