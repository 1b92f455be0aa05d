// Which names of a tree a copy takes: the rules of --include, --exclude and --filter, as rsync has
// them. The first rule that matches a name decides; a name that none matches is taken.
//
// Values; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "files/protocol/outcome.h"

namespace weft::files {

// A pattern of rsync: `*` and `?` match no slash, `**` matches anything, `[a-z]` one octet. With a
// slash at its end it is for folders; with one at its beginning for paths from the top of the tree;
// with one within, or with `**`, for the ends of paths; otherwise for names anywhere. `a/***` is
// for the folder `a` and all that is in it.
class Pattern {
 public:
  explicit Pattern(std::string_view text);
  // `path`: below the top of the tree, without a slash at either end.
  [[nodiscard]] bool matches(std::string_view path, bool is_folder) const;

 private:
  enum class Kind : std::uint8_t { kOctet, kOne, kClass, kStar, kStars };
  struct Token {
    Kind kind;
    std::string text;  // the octet, or the class
  };
  void tokenize(std::string_view text);
  [[nodiscard]] bool is_match(std::string_view path) const;
  void step(const std::vector<bool>& now, char octet, std::vector<bool>& next) const;
  void pass_empty(std::vector<bool>& states) const;

  std::vector<Token> tokens_;
  bool anchored_ = false;
  bool folders_only_ = false;
  bool name_only_ = false;     // for the last component
  bool slash_before_ = false;  // begins with **: the path is looked at with a slash in front
  bool slash_behind_ = false;  // ends with ***: a folder is looked at with a slash at its end
};

class Filter {
 public:
  void include(std::string_view pattern) { add(pattern, true, kBoth); }
  void exclude(std::string_view pattern) { add(pattern, false, kBoth); }
  // "- PATTERN", "+ PATTERN", and those of rsync's other rules that say who follows them: H and S
  // (the source), P and R (the destination, which removes). "!" forgets the rules so far.
  //   EINVAL   with what may be written
  [[nodiscard]] Outcome<void> add_rule(std::string_view rule);

  // Whether the source leaves out a name; `below` is its folder, "" the top of the tree.
  [[nodiscard]] bool hides(std::string_view below, std::string_view name, bool is_folder) const;
  // Whether a name that only the destination has stays there. With `delete_excluded` rules that do
  // not say who follows them keep nothing.
  [[nodiscard]] bool protects(std::string_view below, std::string_view name, bool is_folder,
                              bool delete_excluded) const;

 private:
  enum Side : std::uint8_t { kSource = 1, kDestination = 2, kBoth = 3 };
  struct Rule {
    Pattern pattern;
    bool includes;
    Side side;
  };
  void add(std::string_view pattern, bool includes, Side side);
  template <class Holds>
  [[nodiscard]] bool excludes(std::string_view below, std::string_view name, bool is_folder,
                              Holds holds) const;

  std::vector<Rule> rules_;
};

}  // namespace weft::files
