// SPDX-License-Identifier: Apache-2.0
#include "nvme/io_engine.h"

#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

namespace headrace::nvme {

int sync_file(int fd) {
  int result = 0;
  do {
    result = ::fdatasync(fd);
  } while (result != 0 && errno == EINTR);
  return result == 0 ? 0 : -errno;
}

void enter_io_thread(const char* name) {
  ::pthread_setname_np(::pthread_self(), name);
  sigset_t all;
  sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

}  // namespace headrace::nvme
