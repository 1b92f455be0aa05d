// A story as tracks with slices, for viewers of traces.
//
// A plain value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "timeline/clocks.h"
#include "timeline/story.h"

namespace weft::timeline {

struct Track {
  std::string name;
  std::size_t process = 0;
  bool is_thread = false;
  std::uint32_t thread = 0;
};

struct Slice {
  std::size_t track = 0;
  std::uint64_t begin = 0, end = 0;  // ns; slices of a track lie in each other or apart
  std::string name;
  std::vector<std::pair<std::string, std::string>> details;
  std::uint64_t flow = 0;  // an arrow goes from the slice with this number to the other; 0: none
  bool flow_ends = false;
};

struct Picture {
  std::vector<Process> processes;
  std::vector<Track> tracks;
  std::vector<Slice> slices;  // by their beginning; one that holds others comes before them
};

[[nodiscard]] Picture picture_of(const Story& story, const Clocks& clocks);

// As a trace of Perfetto (protobuf), and as JSON of Chrome's trace viewer, which Perfetto reads
// too.
[[nodiscard]] std::string as_perfetto(const Picture& picture);
[[nodiscard]] std::string as_json(const Picture& picture);

}  // namespace weft::timeline
