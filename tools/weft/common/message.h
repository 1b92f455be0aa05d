// Everything that `weft`, weft-data and exs-perf say to a person goes through here: error messages,
// notes, help texts.
//
// An error message has the form `weft: WHAT: WHY; WHAT TO DO`. WHAT is the option, file or address;
// the last part may be missing where nothing can be done.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/command.h"

namespace weft::cli {

// The name in front of every message: "weft" unless a program sets its own, first of all. The view
// must live as long as the program.
void set_program(std::string_view name);

// Prints "weft: TEXT" on stderr as one write. A "weft: " that TEXT already starts with is not
// repeated.
void say(std::string_view text);

// Hands over all that was printed, at the end of a program. Returns `exit_code`; kExitFailure where
// it is not all where it should be, which is said.
[[nodiscard]] int after_output(int exit_code);

// Replaces what could steer a terminal (control characters of ASCII and, in UTF-8, of Latin-1) by
// question marks. Line ends and tabs stay.
void hide_controls(std::string& text);

// "did you mean 'write'?" when `text` looks like a misspelling of one of `words`, else "".
[[nodiscard]] std::string did_you_mean(std::string_view text, std::span<const std::string> words);
// The same for legal values written as a sentence: "write, read or send".
[[nodiscard]] std::string did_you_mean(std::string_view text, std::string_view legal_values);

// Columns of a table or text on this output: those of the terminal, at most 100; 100 if it is none.
[[nodiscard]] std::size_t screen_columns(int fd);

// Whether to use color on `fd`: a terminal, and NO_COLOR is unset or empty, and TERM is not "dumb".
[[nodiscard]] bool use_color(int fd);

// Splits `text` at spaces into lines of at most `width` columns. A longer word stays whole.
[[nodiscard]] std::vector<std::string> wrap(std::string_view text, std::size_t width);

}  // namespace weft::cli
