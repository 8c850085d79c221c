// SPDX-License-Identifier: Apache-2.0
// The program as a child process: a folder of its own, a tiny configuration, exit codes and output.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace headrace::cli {

namespace fs = std::filesystem;
using nlohmann::json;

inline std::string file_text(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

struct Outcome {
  int exit_code;
  std::string out, err;
};

class Program : public ::testing::Test {
 protected:
  Program() : dir_(fs::temp_directory_path() / ("headrace_program_" + std::to_string(getpid()))) {
    fs::remove_all(dir_);
    fs::create_directories(dir_ / "nvme");
    std::ofstream text(dir_ / "text.txt");
    for (int i = 0; i < 2000; ++i)
      text << "line " << i * 7 % 1000 << " of a text that a tiny model can learn\n";
  }
  ~Program() override { fs::remove_all(dir_); }

  [[nodiscard]] std::string path(const std::string& name) const { return (dir_ / name).string(); }

  /// A model of a few thousand parameters with its state on every tier.
  void write_config(const std::string& name) const {
    std::ofstream(dir_ / name)
        << "[model]\nlayers = 2\nhidden = 32\nheads = 2\nkv_heads = 1\nffn = 64\n"
        << "[data]\ntrain = [\"" << path("text.txt") << "\"]\nvalid = [\"" << path("text.txt")
        << "\"]\nseq_len = 32\n[train]\nsteps = 4\nmicro_batch = 2\neval_batches = 2\n"
        << "[device]\nkind = \"host\"\nmemory = \"64MiB\"\n"
        << "[offload]\nweights = \"host\"\noptimizer = \"nvme\"\nactivations = \"host\"\n"
        << "host_memory = \"64MiB\"\n[nvme]\npaths = [\"" << path("nvme") << "\"]\n[checkpoint]\ndir = \""
        << path("saved") << "\"\n[log]\ndir = \"" << path("log") << "\"\n";
  }

  [[noreturn]] static void exec(const std::vector<std::string>& arguments) {
    std::vector<char*> argv = {const_cast<char*>(HEADRACE_PROGRAM)};
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    execv(HEADRACE_PROGRAM, argv.data());
    _exit(127);
  }
  pid_t start(const std::vector<std::string>& arguments) const {
    const pid_t child = fork();
    if (child != 0) return child;
    dup2(open(path("out").c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600), STDOUT_FILENO);
    dup2(open(path("err").c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600), STDERR_FILENO);
    exec(arguments);
  }
  [[nodiscard]] Outcome finish(pid_t child) const {
    int status = 0;
    waitpid(child, &status, 0);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    return {code, file_text(path("out")), file_text(path("err"))};
  }
  [[nodiscard]] Outcome run(const std::vector<std::string>& arguments) const {
    return finish(start(arguments));
  }

  [[nodiscard]] size_t metrics_lines() const {
    const std::string text = file_text(path("log/metrics.jsonl"));
    return size_t(std::count(text.begin(), text.end(), '\n'));
  }
  /// Values of `field` in the lines of metrics.jsonl whose "ev" is `event`.
  [[nodiscard]] std::vector<json> metrics(const std::string& event, const std::string& field) const {
    std::vector<json> values;
    std::ifstream file(path("log/metrics.jsonl"));
    for (std::string line; std::getline(file, line);) {
      const json object = json::parse(line);
      if (object["ev"] == event) values.push_back(object[field]);
    }
    return values;
  }

  fs::path dir_;
};

}  // namespace headrace::cli
