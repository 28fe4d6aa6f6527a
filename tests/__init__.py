from vicinal._portable import make_portable

# Pages and tests hold digits of trainings, which would be others on a processor with newer instructions than AVX2.
make_portable()
