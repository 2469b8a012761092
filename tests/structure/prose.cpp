#include "structure/prose.h"

#include <cctype>
#include <regex>
#include <sstream>

namespace structure {
namespace {

/// Patterns are slow, so they are tried only around a key that each match contains.
struct Phrase {
  std::vector<std::string> keys;
  std::regex pattern;
  std::string remedy;
};

/// How much of a text around a key a match can cover, with room to spare.
constexpr std::size_t kBefore = 30;
constexpr std::size_t kAfter = 60;

/// What is counted, and for what: "4 bytes an element", "one line a step".
const char* const kDistributive =
    R"(\b(bytes?|elements|lines?|numbers?|times|tokens|gathers|all-gathers?|reductions?|norms?|)"
    R"(collectives|micro-steps|tensors|threads|questions|folder|file|entry|target|operations|)"
    R"(seconds|ms|gib|parameters?|vector|value|one|two|[0-9]+) an? )"
    R"((step|rank|micro-step|element|parameter|unit|task|token|row|flat parameter|kind|layer|)"
    R"(folder|call|second|group|reduction|backward|iteration|test case|student|line|)"
    R"(micro-batch|module)\b)"
    R"((?=[.,;:)\]"|=]| and | with | than | under | in | of |: |$))";

const std::vector<Phrase>& phrases() {
  static const std::vector<Phrase> table = {
      {{" a ", " an "}, std::regex(kDistributive), "write 'per', or 'each'"},
      {{"whoever", "somebody"},
       std::regex(R"(\b(whoever|somebody)\b)"),
       "name the actor, or speak to the reader"},
      {{"who "},
       std::regex(R"((^|[.] )who (forgets|waits|reads|wants|calls|asks)\b)"),
       "write 'if you …'"},
      {{"giv"},
       std::regex(R"(\b(is|are|was|were|be|been) given up\b|\bgiven up (after|since)\b|)"
                  R"(\bgiv(e|es|ing) (its|the|their) \w+ up\b)"),
       "memory is freed; a unit is resharded"},
      {{"bytes", "go of"},
       std::regex(R"(\b(has|gets its|get their) bytes\b|\bbytes go away\b|\blets? go of\b)"),
       "memory is allocated, held or freed"},
      {{"hear"},
       std::regex(R"(\b(hears?|heard) (of|nothing|in)\b|\bis heard\b)"),
       "code is called, or notified"},
      {{"of which"},
       std::regex(R"(, of which\b|\w of which (the|one|a|all|more|some)\b)"),
       "begin a new sentence"},
      {{"there", "where", "hence"},
       std::regex(R"(\bthere(of|by|in|upon)\b|\bwhere(of|by|upon)\b|\bhence(forth)?\b)"),
       "use a plain word"},
      {{"one's own"}, std::regex(R"(\bone's own\b)"), "write 'its own' or 'your own'"},
      {{", too"}, std::regex(R"(\b(it|them), too\b)"), "write 'also' before the verb"},
      {{" there"},
       std::regex(R"(\b(that are|is never) there\b|\bare there at once\b)"),
       "memory is allocated, held or freed; a unit is unsharded"},
      {{"any more"}, std::regex(R"(\bany more\b)"), "write 'no longer', or 'no …'"},
      {{" told"},
       std::regex(R"(\b(scheduler|prefetcher|reducer|tracker|optimizer) (is|was) told\b)"),
       "code is called, or notified"},
      {{"for ever"}, std::regex(R"(\bfor ever\b)"), "write 'forever'"},
      {{"at the "}, std::regex(R"(\bat the (most|least)\b)"), "write 'at most' or 'at least'"},
      {{"but for"}, std::regex(R"([,)] but for (the|units|a)\b)"), "write 'except'"},
      {{"other way"}, std::regex(R"(\bthe other way round\b)"), "say which comes first"},
      {{" said"},
       std::regex(R"(\b(is|are|was) said\b)"),
       "say who says it: 'reports', 'sets', 'names'"},
      {{"had ", "were "}, std::regex(R"((^|[.;:] )(had|were) (you|it|they|the)\b)"), "write 'if'"},
  };
  return table;
}

std::string lowered(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

/// The first match of `phrase` in a text in lower case; empty if there is none.
std::string first_match(const std::string& text, const Phrase& phrase) {
  for (const std::string& key : phrase.keys) {
    for (std::size_t p = text.find(key); p != std::string::npos; p = text.find(key, p + 1)) {
      const std::size_t begin = p < kBefore ? 0 : p - kBefore;
      const std::string around = text.substr(begin, p - begin + kAfter);
      std::smatch match;
      if (std::regex_search(around, match, phrase.pattern)) return match.str();
    }
  }
  return "";
}

bool ends_sentence(const std::string& word) {
  const std::size_t last = word.find_last_not_of(")*_\"'");
  return last != std::string::npos && (word[last] == '.' || word[last] == '!' || word[last] == '?');
}

bool is_word(const std::string& word) {
  for (const char c : word) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) return true;
  }
  return false;
}

}  // namespace

Violations stiff_phrases(const std::vector<File>& files) {
  Violations found;
  for (const File& file : files) {
    for (const Passage& passage : passages_of(file)) {
      const std::string text = lowered(passage.text);
      for (const Phrase& phrase : phrases()) {
        const std::string match = first_match(text, phrase);
        if (match.empty()) continue;
        found.push_back(at(file, passage.line_index) + ": '" + match + "': " + phrase.remedy);
      }
    }
  }
  return found;
}

Violations long_sentences(const std::vector<File>& files, std::size_t limit) {
  Violations found;
  for (const File& file : files) {
    for (const Passage& passage : passages_of(file)) {
      std::string sentence;
      std::size_t count = 0;
      const auto end = [&] {
        if (count > limit) {
          found.push_back(at(file, passage.line_index) + ": " + std::to_string(count) +
                          " words, at most " + std::to_string(limit) + ": '" +
                          sentence.substr(0, 50) + "…'");
        }
        sentence.clear();
        count = 0;
      };
      std::istringstream in(passage.text);
      for (std::string word; in >> word;) {
        sentence += (sentence.empty() ? "" : " ") + word;
        count += is_word(word) ? 1 : 0;
        if (ends_sentence(word)) end();
      }
      end();
    }
  }
  return found;
}

}  // namespace structure
