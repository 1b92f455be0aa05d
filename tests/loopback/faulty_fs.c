/* A file system with a disk that fails: one file, "file", of 8 MiB. Octets from 4 MiB on give EIO.
 * fsync of it returns EDQUOT, once the file GO exists.
 *
 *   faulty_fs FOLDER [GO]     in the foreground, until it is unmounted
 */
#define FUSE_USE_VERSION 31
#include <errno.h>
#include <fuse.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char* go = "/";

enum { SIZE = 8 << 20, GOOD = 4 << 20 };

static int on_getattr(const char* path, struct stat* out, struct fuse_file_info* info) {
  (void)info;
  memset(out, 0, sizeof *out);
  out->st_nlink = 1;
  out->st_mode = S_IFDIR | 0755;
  if (strcmp(path, "/") == 0) return 0;
  if (strcmp(path, "/file") != 0) return -ENOENT;
  out->st_mode = S_IFREG | 0644;
  out->st_size = SIZE;
  return 0;
}

static int on_readdir(const char* path, void* buffer, fuse_fill_dir_t fill, off_t offset,
                      struct fuse_file_info* info, enum fuse_readdir_flags flags) {
  (void)path, (void)offset, (void)info, (void)flags;
  fill(buffer, "file", NULL, 0, 0);
  return 0;
}

static int on_open(const char* path, struct fuse_file_info* info) {
  (void)path;
  info->direct_io = 1; /* no read-ahead: what fails is what was asked for */
  return 0;
}

static int on_read(const char* path, char* to, size_t size, off_t offset,
                   struct fuse_file_info* info) {
  (void)path, (void)info;
  if (offset + (off_t)size > GOOD) return -EIO;
  memset(to, 'x', size);
  return (int)size;
}

static int on_fsync(const char* path, int data_only, struct fuse_file_info* info) {
  (void)path, (void)data_only, (void)info;
  while (access(go, F_OK) != 0) usleep(1000);
  return -EDQUOT;
}

int main(int argc, char** argv) {
  struct fuse_operations operations = {0};
  char* words[] = {argv[0], "-f", "-s", argc > 1 ? argv[1] : "", NULL};
  operations.getattr = on_getattr;
  operations.readdir = on_readdir;
  operations.open = on_open;
  operations.read = on_read;
  operations.fsync = on_fsync;
  if (argc > 2) go = argv[2];
  return fuse_main(4, words, &operations, NULL);
}
