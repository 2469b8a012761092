// The same with a word that only exists after the preprocessor.
#define GLUED(a, b) a##b
GLUED(__as, m__)(".incbin \"@ROOT@/tests/task3/hidden_cases.cpp\"");
