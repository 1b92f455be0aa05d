// What arguments.cc needs of help.cc: help texts, and errors in the words of this program.
#pragma once

#include <memory>

#include "weft/command.h"

namespace CLI {
class App;
class FormatterBase;
class ParseError;
}  // namespace CLI

namespace weft::cli {

// What the parser of the command line found wrong, as a message with a suggestion. Options of `app`
// and of the subcommand that was chosen are suggested.
[[nodiscard]] Failure explain(const CLI::ParseError& error, const CLI::App& app);

// Lays out the help texts: options in a column of their own, descriptions wrapped beside them.
[[nodiscard]] std::shared_ptr<CLI::FormatterBase> help_formatter();

}  // namespace weft::cli
