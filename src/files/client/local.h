// The client's side of a copy: files and folders of this machine.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "files/client/archive.h"
#include "files/protocol/data_protocol.h"
#include "files/protocol/draft.h"
#include "files/protocol/outcome.h"
#include "os/fd.h"

namespace weft::files {

// A folder that a copy goes to. Names come from a server and are not trusted: none leads out of the
// folder, and no symbolic link below it is followed.
class Destination {
 public:
  // Makes the folder if `create`. `mode`: of all folders that are made.
  [[nodiscard]] static Outcome<Destination> open(const std::string& folder, bool create,
                                                 mode_t mode = 0777);
  // One in which nothing is made: it and its folders may be missing.
  [[nodiscard]] static Outcome<Destination> open_to_look(const std::string& folder);

  // The same folder once more, for another thread.
  [[nodiscard]] Outcome<Destination> another() const;

  // A folder below; "" is the destination itself. Made if it is not there, which is noted in
  // `made`. The last few stay open, so that a copy of many folders needs few descriptors. Behind
  // open_to_look() a folder that would be made is no descriptor.
  [[nodiscard]] Outcome<std::shared_ptr<os::Fd>> folder(const std::string& path,
                                                        bool* made = nullptr);
  [[nodiscard]] bool was_made() const { return made_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  // Its own name is on the disk then. A folder above that cannot be read is left alone, unless the
  // destination was made there.
  [[nodiscard]] Outcome<void> flush_name() const;
  // How a failure names what lies below.
  [[nodiscard]] std::string shown(const std::string& path) const;

 private:
  static constexpr std::size_t kKeptOpen = 32;
  struct Kept {
    std::string path;
    std::shared_ptr<os::Fd> folder;
  };
  [[nodiscard]] Outcome<os::Fd> open_or_make(const std::string& path, bool& made) const;

  std::string name_;
  os::Fd root_;
  mode_t mode_ = 0777;
  bool made_ = false;
  bool only_looks_ = false;
  std::vector<Kept> kept_;
  std::size_t oldest_ = 0;  // of kept_, once it is full
};

// A folder below `root`, through which no symbolic link leads; -1 with errno. "" is `root`.
[[nodiscard]] int open_folder_below(int root, const std::string& path);

// Names that copies and servers use for files that are not whole. No copy takes them along.
inline constexpr std::string_view kPartPrefix = ".weft-part-";
[[nodiscard]] inline bool is_unfinished(std::string_view name) {
  return name.starts_with(kPartPrefix) || name.starts_with(kDraftPrefix);
}

inline constexpr std::size_t kNameBytes = 255;  // the longest that a file may have here
// Whether a server may call an entry of a folder so; of any length, or not too long.
[[nodiscard]] bool is_safe_but_long(std::string_view name);
[[nodiscard]] bool is_safe_name(std::string_view name);

// A file on its way. It is written under a name of its own, made from the file's name, size and
// time: an interrupted copy of the same file goes on where it stopped, one of a changed file starts
// anew. Whoever writes it holds its lock; a second copy of the same file at the same time gets a
// name that nobody else uses.
class Part {
 public:
  // `path`: of the file, below the destination; its folder is made if it is not there. `there`: how
  // many octets an earlier attempt has left. They may be anything: a power cut leaves holes.
  // Without `resume` that is 0.
  [[nodiscard]] static Outcome<Part> open(Destination& destination, const std::string& path,
                                          const Attributes& attributes, bool resume,
                                          std::uint64_t& there);
  Part(Part&& other) noexcept = default;
  Part& operator=(Part&& other) noexcept = default;

  [[nodiscard]] int fd() const { return file_.get(); }
  // Makes it so long: what lies behind is forgotten, what is missing reads as zeros.
  [[nodiscard]] Outcome<void> keep(std::uint64_t bytes);
  // Octets behind all that is there already. Cells of zeros become holes, but for the last one.
  [[nodiscard]] Outcome<void> write(const std::uint8_t* data, std::size_t bytes, std::uint64_t at);
  // Writes from here on past the page cache, where file system and memory let it, or no longer.
  void pass_cache(bool on);
  // Gives it its full length, where zeros at its end were left out.
  [[nodiscard]] Outcome<void> complete(std::uint64_t size);
  // finish() sets these, too. The file is ended otherwise as before.
  void carry(Details details) { details_ = std::move(details); }
  // Sets the attributes and takes the final name in one step. `durable`: the contents are on the
  // disk before. The name is once its folder has been flushed.
  //   ESTALE   somebody has removed or replaced the part
  [[nodiscard]] Outcome<void> finish(const Attributes& attributes, bool durable);
  void discard();

 private:
  Part() = default;
  [[nodiscard]] int open_unique();
  [[nodiscard]] Outcome<void> write_fully_at(const std::uint8_t* data, std::size_t bytes,
                                             std::uint64_t at);
  std::shared_ptr<os::Fd> folder_;
  std::string name_, part_name_;
  std::string shown_;  // in failures
  std::optional<Details> details_;
  os::Fd file_;
  std::uint64_t end_ = 0;  // the length of the part
  bool passes_cache_ = false;
};

// A name for something that is not whole: kPartPrefix and a random number.
//   EIO   no random numbers
[[nodiscard]] Outcome<std::string> unique_part_name();

// Makes a symbolic link; with `replace` it takes the place of what has the name, in one step.
// 0 or an errno, and then what had the name has it still.
[[nodiscard]] int put_link(int folder, const std::string& name, const std::string& target,
                           bool replace);

// All of `bytes`, whatever a single write() takes. 0 or an errno.
[[nodiscard]] int write_fully(int fd, const std::uint8_t* data, std::size_t bytes);

}  // namespace weft::files
