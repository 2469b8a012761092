// Does not compile.
int attack( {
  return; }
