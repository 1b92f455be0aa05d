#include "check/module/reports.h"

#include <utility>

namespace weft::check {
namespace {

constexpr std::size_t kShownOfNotes = 3;  // frames of an object

}  // namespace

Reports::Reports(const std::string& suppress, const std::string& folder)
    : suppressed_(read_suppressions(suppress)), output_(folder) {}

Origin Reports::remember(std::vector<void*> trace) {
  const auto [at, fresh] =
      numbers_.emplace(std::move(trace), static_cast<Origin>(traces_.size() + 1));
  if (fresh) traces_.push_back(&at->first);
  return at->second;
}

std::vector<Frame> Reports::frames_of(Origin origin, std::size_t most) const {
  if (origin == 0 || origin > traces_.size()) return {};
  return program_frames(*traces_[origin - 1], most);
}

const void* Reports::calling_address(Origin origin) const {
  const std::vector<void*>& trace = *traces_[origin - 1];
  return trace.empty() ? nullptr : trace.front();
}

std::vector<PlacedNote> Reports::placed(const std::vector<Note>& notes) const {
  std::vector<PlacedNote> out;
  for (const Note& note : notes) out.push_back({note.text, frames_of(note.at, kShownOfNotes)});
  return out;
}

void Reports::begin_anew() {
  serious_ = false;
  output_.begin_anew();
}

void Reports::add(const Finding& found) {
  if (!reported_.emplace(found.rule, found.at, found.call).second) return;
  const Placed all{found, frames_of(found.at, kShownFrames), placed(found.notes)};
  if (is_suppressed(suppressed_, all)) return;
  if (found.rule.front() != 'N') serious_ = true;
  output_.write(all);
}

}  // namespace weft::check
