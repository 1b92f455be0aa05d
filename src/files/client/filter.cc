#include "files/client/filter.h"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace weft::files {
namespace {

// Where the class that begins at `at` ends, behind its bracket; 0: it does not end.
std::size_t end_of_class(std::string_view text, std::size_t at) {
  std::size_t i = at + 1;
  if (i < text.size() && (text[i] == '!' || text[i] == '^')) ++i;
  if (i < text.size() && text[i] == ']') ++i;
  for (; i < text.size(); ++i) {
    if (text[i] == ']') return i + 1;
    if (text[i] == '\\') ++i;
    // A name within, as in [[:alpha:]].
    if (text.substr(i, 2) == "[:") {
      const std::size_t end = text.find(":]", i + 2);
      if (end != std::string_view::npos) i = end + 1;
    }
  }
  return 0;
}

}  // namespace

Pattern::Pattern(std::string_view text) {
  folders_only_ = text.size() > 1 && text.ends_with('/');
  if (folders_only_) text.remove_suffix(1);
  anchored_ = text.starts_with('/');
  if (anchored_) text.remove_prefix(1);
  const bool has_stars = text.find("**") != std::string_view::npos;
  name_only_ = !anchored_ && !has_stars && text.find('/') == std::string_view::npos;
  slash_before_ = !anchored_ && text.starts_with("**");
  slash_behind_ = text.ends_with("***");
  tokenize(text);
}

// A backslash takes the meaning of the next octet, but only where there are wildcards.
void Pattern::tokenize(std::string_view text) {
  const bool has_wildcards = text.find_first_of("*?[") != std::string_view::npos;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (has_wildcards && c == '\\' && i + 1 < text.size()) {
      tokens_.push_back({Kind::kOctet, std::string(1, text[++i])});
    } else if (c == '*') {
      const std::size_t end = std::min(text.find_first_not_of('*', i), text.size());
      tokens_.push_back({end - i > 1 ? Kind::kStars : Kind::kStar, {}});
      i = end - 1;
    } else if (c == '?') {
      tokens_.push_back({Kind::kOne, {}});
    } else if (const std::size_t end = c == '[' ? end_of_class(text, i) : 0; end != 0) {
      tokens_.push_back({Kind::kClass, std::string(text.substr(i, end - i))});
      i = end - 1;
    } else {
      tokens_.push_back({Kind::kOctet, std::string(1, c)});
    }
  }
}

// A star may match nothing.
void Pattern::pass_empty(std::vector<bool>& states) const {
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const bool star = tokens_[i].kind == Kind::kStar || tokens_[i].kind == Kind::kStars;
    if (states[i] && star) states[i + 1] = true;
  }
}

void Pattern::step(const std::vector<bool>& now, char octet, std::vector<bool>& next) const {
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    if (!now[i]) continue;
    const Token& token = tokens_[i];
    switch (token.kind) {
      case Kind::kStars: next[i] = true; break;
      case Kind::kStar: next[i] = next[i] || octet != '/'; break;
      case Kind::kOne: next[i + 1] = next[i + 1] || octet != '/'; break;
      case Kind::kOctet: next[i + 1] = next[i + 1] || octet == token.text[0]; break;
      case Kind::kClass: {
        const char one[] = {octet, '\0'};
        if (octet != '/' && fnmatch(token.text.c_str(), one, 0) == 0) next[i + 1] = true;
        break;
      }
    }
  }
}

// All places of the pattern at once: no pattern and no name takes long.
bool Pattern::is_match(std::string_view path) const {
  std::vector<bool> now(tokens_.size() + 1);
  now[0] = true;
  pass_empty(now);
  for (const char octet : path) {
    std::vector<bool> next(now.size());
    step(now, octet, next);
    pass_empty(next);
    now = std::move(next);
  }
  return now.back();
}

bool Pattern::matches(std::string_view path, bool is_folder) const {
  if (folders_only_ && !is_folder) return false;
  if (name_only_) return is_match(path.substr(path.rfind('/') + 1));
  std::string whole(slash_before_ ? "/" : "");
  whole += path;
  if (slash_behind_ && is_folder) whole += '/';
  std::string_view end = whole;
  for (;;) {
    if (is_match(end)) return true;
    const std::size_t slash = end.find('/');
    if (anchored_ || slash == std::string_view::npos || slash + 1 == end.size()) return false;
    end.remove_prefix(slash + 1);
  }
}

void Filter::add(std::string_view pattern, bool includes, Side side) {
  rules_.push_back({Pattern(pattern), includes, side});
}

namespace {

// The actions of rsync's rules.
struct Action {
  char letter;
  std::string_view name;
  bool includes;
  std::uint8_t sides;
};
constexpr std::uint8_t kOfSource = 1;
constexpr std::uint8_t kOfDestination = 2;
constexpr auto kActions = std::to_array<Action>({
    {'-', "exclude", false, kOfSource | kOfDestination},
    {'+', "include", true, kOfSource | kOfDestination},
    {'H', "hide", false, kOfSource},
    {'S', "show", true, kOfSource},
    {'P', "protect", false, kOfDestination},
    {'R', "risk", true, kOfDestination},
});

}  // namespace

Outcome<void> Filter::add_rule(std::string_view rule) {
  if (rule == "!" || rule == "clear") {
    rules_.clear();
    return {};
  }
  const std::size_t space = rule.find_first_of(" _");
  const std::string_view word = rule.substr(0, std::min(space, rule.size()));
  const std::string_view pattern =
      space == std::string_view::npos ? std::string_view() : rule.substr(space + 1);
  const auto* const action = std::find_if(kActions.begin(), kActions.end(), [&](const Action& a) {
    return word == a.name || word == std::string_view(&a.letter, 1);
  });
  if (action == kActions.end() || pattern.empty()) {
    return failed(EINVAL, "--filter: '" + std::string(rule) + "'",
                  "is no rule; write '- PATTERN', '+ PATTERN', or with H, S, P or R in front, or "
                  "'!'. Rules of files and modifiers are not known");
  }
  add(pattern, action->includes, static_cast<Side>(action->sides));
  return {};
}

template <class Holds>
bool Filter::excludes(std::string_view below, std::string_view name, bool is_folder,
                      Holds holds) const {
  if (rules_.empty()) return false;
  std::string path(below);
  if (!path.empty()) path += '/';
  path += name;
  for (const Rule& rule : rules_) {
    if (holds(rule.side) && rule.pattern.matches(path, is_folder)) return !rule.includes;
  }
  return false;
}

bool Filter::hides(std::string_view below, std::string_view name, bool is_folder) const {
  return excludes(below, name, is_folder, [](Side side) { return (side & kSource) != 0; });
}

bool Filter::protects(std::string_view below, std::string_view name, bool is_folder,
                      bool delete_excluded) const {
  return excludes(below, name, is_folder, [&](Side side) {
    return delete_excluded ? side == kDestination : (side & kDestination) != 0;
  });
}

}  // namespace weft::files
