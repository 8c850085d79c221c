// SPDX-License-Identifier: Apache-2.0
// What the program prints. A failed print never throws: a training outlives the terminal it was started from.
// The failure is kept, and commands whose only product is their output ask for it at their end.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

namespace headrace::cli {

/// At the very start: gives the standard descriptors that the program was started without to /dev/null, so
/// that no file of its own gets one of them and receives what is printed. Writing to them fails as before.
void fill_standard_descriptors();

void write_text(std::FILE* out, std::string_view text);
void flush(std::FILE* out);

/// errno of the first write to standard output that failed, after flushing it; 0: everything was written.
int output_error();
/// Throws Error when standard output could not be written.
void check_output();

template <class... Args>
void print(fmt::format_string<Args...> format, Args&&... args) {
  write_text(stdout, fmt::format(format, std::forward<Args>(args)...));
}

/// One line on standard error.
template <class... Args>
void print_error(fmt::format_string<Args...> format, Args&&... args) {
  write_text(stderr, "headrace: " + fmt::format(format, std::forward<Args>(args)...) + "\n");
}

}  // namespace headrace::cli
