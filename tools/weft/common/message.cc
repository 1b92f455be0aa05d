#include "weft/common/message.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <numeric>

namespace weft::cli {
namespace {

std::string_view g_program = "weft";
constexpr std::size_t kMostColumns = 100;
constexpr std::size_t kFewestColumns = 40;
constexpr std::size_t kLongestWord = 64;  // of a suggestion: what is longer is not compared

// Insertions, deletions, replacements and swaps of neighbors that make `b` of `a`.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replace});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

// "write, read or send" -> the words, without quotes and parentheses.
std::vector<std::string> words_of(std::string_view sentence) {
  constexpr std::string_view kBetween = " ,;()'\"";
  std::vector<std::string> words;
  while (true) {
    const std::size_t start = sentence.find_first_not_of(kBetween);
    if (start == std::string_view::npos) return words;
    sentence.remove_prefix(start);
    const std::string_view word = sentence.substr(0, sentence.find_first_of(kBetween));
    if (word != "or" && word != "and") words.emplace_back(word);
    sentence.remove_prefix(word.size());
  }
}

}  // namespace

void set_program(std::string_view name) { g_program = name; }

void hide_controls(std::string& text) {
  unsigned char before = 0;
  for (char& c : text) {
    const auto octet = static_cast<unsigned char>(c);
    const bool ascii = (octet < ' ' && c != '\n' && c != '\t') || octet == 0x7f;
    const bool latin = before == 0xc2 && octet >= 0x80 && octet < 0xa0;
    if (latin) (&c)[-1] = '?';
    if (ascii || latin) c = '?';
    before = octet;
  }
}

void say(std::string_view text) {
  const std::string prefix = fmt::format("{}: ", g_program);
  if (text.starts_with(prefix)) text.remove_prefix(prefix.size());
  std::string line = fmt::format("{}{}\n", prefix, text);
  hide_controls(line);  // names and texts of a peer may be among it
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
}

int after_output(int exit_code) {
  constexpr const char* kUnknown = "could not be written";
  const char* why = std::ferror(stdout) != 0 ? kUnknown : nullptr;
  if (std::fflush(stdout) != 0) why = std::strerror(errno);
  // NFS, SMB and FUSE may refuse only at the close what was written.
  const int copy = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);
  if (copy >= 0 && close(copy) != 0) why = std::strerror(errno);
  if (why == nullptr) return exit_code;
  say(fmt::format("the standard output: {}", why));
  return kExitFailure;
}

int report_failure(const Failure& why) {
  say(why.message);
  return why.exit_code;
}

std::string did_you_mean(std::string_view text, std::span<const std::string> words) {
  if (text.empty() || text.size() > kLongestWord) return "";
  std::size_t best = std::numeric_limits<std::size_t>::max();
  std::string_view choice;
  for (const std::string& word : words) {
    if (word.size() > kLongestWord) continue;
    // "fetch" for "fetch-add"
    const bool longer = text.size() >= 3 && word.size() > text.size() && word.starts_with(text);
    const std::size_t distance = longer ? 1 : edit_distance(text, word);
    if (distance < best) {
      best = distance;
      choice = word;
    }
  }
  // One mistake in each three letters; a word of two letters may have one.
  const std::size_t allowed = std::max<std::size_t>(1, std::max(text.size(), choice.size()) / 3);
  if (best == 0 || best > allowed || best >= text.size()) return "";
  return fmt::format("did you mean '{}'?", choice);
}

std::string did_you_mean(std::string_view text, std::string_view legal_values) {
  return did_you_mean(text, words_of(legal_values));
}

std::size_t screen_columns(int fd) {
  winsize size{};
  if (isatty(fd) == 0 || ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kMostColumns;
  return std::clamp<std::size_t>(size.ws_col, kFewestColumns, kMostColumns);
}

bool use_color(int fd) {
  const char* no_color = std::getenv("NO_COLOR");
  if (no_color != nullptr && no_color[0] != '\0') return false;
  const char* term = std::getenv("TERM");
  return isatty(fd) != 0 && term != nullptr && std::string_view(term) != "dumb";
}

std::vector<std::string> wrap(std::string_view text, std::size_t width) {
  std::vector<std::string> lines;
  std::string line;
  while (!text.empty()) {
    const std::size_t start = std::min(text.find_first_not_of(' '), text.size());
    const std::size_t end = std::min(text.find(' ', start), text.size());
    const std::string_view word = text.substr(start, end - start);
    text.remove_prefix(end);
    if (word.empty()) continue;
    if (!line.empty() && line.size() + 1 + word.size() > width) {
      lines.push_back(std::move(line));
      line.clear();
    }
    if (!line.empty()) line += ' ';
    line += word;
  }
  if (!line.empty() || lines.empty()) lines.push_back(std::move(line));
  return lines;
}

}  // namespace weft::cli
