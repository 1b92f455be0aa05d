// The client's side of a copy: files and folders of this machine.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "store/protocol.h"
#include "store/tree.h"

namespace weft::store {

// A folder that a copy goes to. Names come from a server and are not trusted: none leads out of the
// folder, and no symbolic link below it is followed.
class Destination {
 public:
  // Makes the folder if `create`.
  [[nodiscard]] static Outcome<Destination> open(const std::string& folder, bool create);

  // A folder below; "" is the destination itself. Made if it is not there.
  [[nodiscard]] Outcome<Fd> folder(const std::string& path) const;
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  std::string name_;
  Fd root_;
};

// Whether a server may call an entry of a folder so.
[[nodiscard]] bool is_safe_name(std::string_view name);

// A file on its way. It is written under a name of its own, made from the file's name, size and
// time: an interrupted copy of the same file goes on where it stopped, one of a changed file starts
// anew.
class Part {
 public:
  // `at` is where to go on. Without `resume` that is 0.
  [[nodiscard]] static Outcome<Part> open(int folder, const std::string& name,
                                          const Attributes& attributes, bool resume,
                                          std::uint64_t& at);
  Part(Part&& other) noexcept = default;
  Part& operator=(Part&& other) noexcept = default;

  [[nodiscard]] int fd() const { return file_.get(); }
  [[nodiscard]] Outcome<void> write(const std::uint8_t* data, std::size_t bytes, std::uint64_t at);
  // Sets the attributes and takes the final name in one step.
  [[nodiscard]] Outcome<void> finish(const Attributes& attributes);
  void discard();

 private:
  Part() = default;
  int folder_ = -1;
  std::string name_, part_name_;
  Fd file_;
};

// All of `bytes`, whatever a single write() takes. 0 or an errno.
[[nodiscard]] int write_fully(int fd, const std::uint8_t* data, std::size_t bytes);

}  // namespace weft::store
