// Digests of results, and a file of those that were recorded. A digest depends on nothing but the bits of the results,
// so it is the same for every compiler, instruction set and machine.
#pragma once

#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <map>
#include <string>

namespace digests {

// FNV-1a.
class Digest {
 public:
  void add(uint64_t bits, unsigned bytes) {
    for (unsigned i = 0; i < bytes; i++) value_ = (value_ ^ (bits >> 8 * i & 0xff)) * 0x100000001b3;
  }
  std::string text() const {
    char text[17];
    std::snprintf(text, sizeof(text), "%016" PRIx64, value_);
    return text;
  }

 private:
  uint64_t value_ = 0xcbf29ce484222325;
};

// The lines of a file: a name of two words, and a digest. Without a file, each digest is printed as such a line.
class Record {
 public:
  explicit Record(const char* path) : prints_(!path) {
    if (!path) return;
    std::ifstream file(path);
    for (std::string name, type, digest; file >> name >> type >> digest;) digests_[name + " " + type] = digest;
  }
  // Returns whether the digest is not the one that was recorded, and prints it then.
  bool differs(const std::string& name, const Digest& digest) const {
    const std::string text = digest.text();
    if (prints_) return std::printf("%s %s\n", name.c_str(), text.c_str()) < 0;
    const auto found = digests_.find(name);
    if (found != digests_.end() && found->second == text) return false;
    std::printf("%s: the bits are not those recorded, %s\n", name.c_str(), text.c_str());
    return true;
  }

 private:
  bool prints_;
  std::map<std::string, std::string> digests_;
};

} // namespace digests
