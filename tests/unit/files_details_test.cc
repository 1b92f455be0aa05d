// Owner, mode, extended attributes and ACLs of a copied file.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "files/client/archive.h"
#include "os/fd.h"

namespace {
std::vector<mode_t> modes;  // before and behind each change of an attribute

void note(const char* file) {
  struct stat s {};
  if (stat(file, &s) == 0) modes.push_back(s.st_mode & 0777U);
}
}  // namespace

// In front of the C library's.
extern "C" int setxattr(const char* file, const char* name, const void* value, std::size_t size,
                        int how) noexcept {
  using Call = int (*)(const char*, const char*, const void*, std::size_t, int);
  static const auto call = reinterpret_cast<Call>(dlsym(RTLD_NEXT, "setxattr"));
  note(file);
  const int result = call(file, name, value, size, how);
  note(file);
  return result;
}

extern "C" int removexattr(const char* file, const char* name) noexcept {
  using Call = int (*)(const char*, const char*);
  static const auto call = reinterpret_cast<Call>(dlsym(RTLD_NEXT, "removexattr"));
  note(file);
  const int result = call(file, name);
  note(file);
  return result;
}

namespace weft::files {
namespace {

constexpr const char* kAcl = "system.posix_acl_access";

// Reading and writing for the owner and user 1, nothing for the group.
std::vector<std::uint8_t> acl_without_group() {
  std::vector<std::uint8_t> out = {2, 0, 0, 0};
  struct Entry {
    std::uint8_t tag, may;
    bool has_number;
  };
  for (const Entry& one : {Entry{0x01, 6, false},
                           {0x02, 6, true},
                           {0x04, 0, false},
                           {0x10, 6, false},
                           {0x20, 0, false}}) {
    const std::uint8_t none = one.has_number ? 0 : 0xff;
    const std::uint8_t first = one.has_number ? 1 : 0xff;
    out.insert(out.end(), {one.tag, 0, one.may, 0, first, none, none, none});
  }
  return out;
}

TEST(DetailsOfAFile, ItsGroupGetsNothingWhileAnAclComesOrGoes) {
  std::string folder = testing::TempDir() + "weft-details-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/file";
  const os::Fd file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  const std::vector<std::uint8_t> acl = acl_without_group();
  Details wanted;
  wanted.has_acls = true;
  wanted.attributes.mode = S_IFREG | 0660U;  // as a file with this ACL shows it
  wanted.attributes.uid = geteuid();
  wanted.attributes.gid = getegid();
  wanted.xattrs.emplace(kAcl, acl);
  modes.clear();
  const int error = set_details(file.get(), wanted);
  if (error != EOPNOTSUPP) {
    ASSERT_EQ(error, 0);
    ASSERT_EQ(modes.size(), 2U);
    EXPECT_EQ(modes[0], 0600U) << "its own group could read it";
    EXPECT_EQ(modes[1], 0660U);
    wanted.xattrs.clear();
    wanted.attributes.mode = S_IFREG | 0604U;
    modes.clear();
    EXPECT_EQ(set_details(file.get(), wanted), 0);
    EXPECT_EQ(modes, std::vector<mode_t>({0600U, 0600U}));
    struct stat s {};
    EXPECT_EQ(fstat(file.get(), &s), 0);
    EXPECT_EQ(s.st_mode & 0777U, 0604U);
    EXPECT_LT(getxattr(path.c_str(), kAcl, nullptr, 0), 0);
  }
  std::filesystem::remove_all(folder);
  if (error == EOPNOTSUPP) GTEST_SKIP() << "no ACLs on the file system of temporary files";
}

}  // namespace
}  // namespace weft::files
