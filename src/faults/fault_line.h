// The words of one line of a file of faults, and what several kinds of rules have in common.
#pragma once

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

#include "faults/fault_rule.h"

namespace weft::faults {

template <class Number>
std::optional<Number> number_of(std::string_view text) {
  Number value{};
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || at != end) return std::nullopt;
  return value;
}

// 2s, 10ms, 50us.
[[nodiscard]] std::optional<std::chrono::nanoseconds> time_of(std::string_view text);
// 64MB, 1500kB: of 1000. At least one.
[[nodiscard]] std::optional<std::uint64_t> octets_in(std::string_view text);

// The words of one line, in turn.
class Line {
 public:
  Line(std::string_view text, int number) : text_(text), number_(number) { advance(); }

  [[nodiscard]] int number() const { return number_; }
  [[nodiscard]] std::string_view word() const { return word_; }
  [[nodiscard]] bool at_end() const { return word_.empty(); }
  std::string_view take() {
    const std::string_view out = word_;
    advance();
    return out;
  }
  // Takes the word if it is this one.
  bool take_if(std::string_view word) {
    if (word_ != word) return false;
    advance();
    return true;
  }
  [[nodiscard]] tl::unexpected<std::string> wrong(const std::string& legal) const {
    const std::size_t column = (word_.empty() ? text_.size() : at_) + 1;
    return tl::unexpected(
        std::to_string(number_) + ":" + std::to_string(column) + ": " +
        (word_.empty() ? std::string("the line ends too early") : "'" + std::string(word_) + "'") +
        ": " + legal);
  }

 private:
  void advance() {
    constexpr std::string_view kBlank = " \t\r";
    at_ = std::min(text_.find_first_not_of(kBlank, at_ + word_.size()), text_.size());
    const std::size_t end = std::min(text_.find_first_of(kBlank, at_), text_.size());
    word_ = text_.substr(at_, end - at_);
  }

  std::string_view text_;
  std::string_view word_;
  std::size_t at_ = 0;
  int number_;
};

// The error is the whole message.
using Done = tl::expected<void, std::string>;

// `on qp N` or `on qp HOST:N`, where it is next: `on 3rd` is something else.
[[nodiscard]] Done read_qp(Line& line, FaultRule& rule);
// The number of a queue pair; or of those that are connected to a host, as h1:0.
[[nodiscard]] Done read_number(Line& line, std::uint64_t& qp, std::string& peer);
// 5%, to 100%.
[[nodiscard]] Done read_share(Line& line, double& percent);
// [every] 64MB, behind `at`.
[[nodiscard]] Done read_octets(Line& line, std::uint64_t& octets, bool& repeats);
// When a rule has its effect, of those that have a WHEN.
[[nodiscard]] Done read_when(Line& line, FaultRule& rule);
[[nodiscard]] constexpr bool comes_by_itself(Effect effect) { return effect >= Effect::kEvent; }
// `receive late 5ms`, without WHEN, whose first word is taken.
[[nodiscard]] Done read_receive(Line& line, FaultRule& rule);
// Whether the octets of such a call are counted: those of posts to a queue pair.
[[nodiscard]] bool has_octets(std::string_view call);
// A rule of a link or of an octet, whole but for `as NAME`.
[[nodiscard]] Done read_link(Line& line, FaultRule& rule);

}  // namespace weft::faults
