#include "engine/esa_sample_text.h"

namespace longheads {

const std::string_view kEsaSampleText =
    R"sample(The ferry to the island left at six in the morning, and by a quarter past nobody on the quay
could see it any more. Marta stood for a while with her hands in her pockets and listened to the engine,
which the fog carried back long after the boat itself had gone. She had promised her brother that she would
look after the house until the spring, and the house, as far as she could tell, needed looking after from
the roof down. "You will find the key under the third flower pot," he had said. There were eleven flower
pots, and whoever had arranged them had not thought of counting.

She tried the first three from the left, then the first three from the right. Under the seventh she found a
key that opened the shed. In the shed, behind a bicycle without wheels, hung a board with nails, and on the
last nail hung the key to the house, with a paper label on which somebody had written in pencil: not under
the flower pot.

Inside it smelled of apples. The clock in the kitchen had stopped at twenty to four, on which day nobody
knew. On the table lay a letter, addressed to no one, and weighed down with a stone the size of a hen's egg.
Marta read it twice. It said that the water had to be turned on behind the stairs, that the stove smoked
when the wind came from the east, that the neighbour, Mr Halloran, would bring eggs on Tuesdays whether she
wanted them or not, and that she should not, under any circumstances, let the cat into the pantry. She had
not known that there was a cat.

Chapter two of the handbook explains how rivers carry stones. A river moves its load in three ways:
dissolved in the water, floating in it as fine mud, and rolling along the bed. Which of the three matters
most depends on the slope and on the amount of water. In the mountains, where the slope is steep, even large
boulders are moved by a single flood; in the plain the same river can hardly lift a grain of sand. For this
reason the stones in a river bed become smaller and rounder the farther they are from the source. If the
speed of the water doubles, the weight of the largest stone that it can move grows roughly sixty-four times.
This rule, which was known to engineers in the nineteenth century, explains why a bridge that has stood for
eighty years may be destroyed in one night.

Ingredients for four: 500 g of flour, 300 ml of lukewarm water, 7 g of dry yeast, 10 g of salt, two spoons
of olive oil. Mix the yeast with the water and wait for five minutes. Add the flour, then the salt, then the
oil, and knead for ten minutes. Cover the bowl and leave it in a warm place until the dough has doubled,
which takes about an hour. Heat the oven to 240 degrees. Divide the dough into four pieces, roll them out,
and bake them for eight to ten minutes, one after the other. If they are pale, the oven was too cold; if
they are hard, it was not hot enough for long enough, which is the same mistake made twice.

Question: A train leaves Aldbury at 14:05 and travels at 80 km/h. Another leaves Brindle, 120 km away, at
14:35 and travels towards the first at 100 km/h. When do they meet?
Answer: At 14:35 the first train has travelled for half an hour, which is 40 km, so 80 km lie between them.
Together they close 180 km in an hour, so that they need 80 / 180 of an hour, which is 26 minutes and 40
seconds. They meet shortly after 15:01.

def running_mean(values, width):
    """The mean of every `width` neighbouring values."""
    if width < 1 or width > len(values):
        raise ValueError("the width must be between 1 and the number of values")
    total = sum(values[:width])
    means = [total / width]
    for i in range(width, len(values)):
        total += values[i] - values[i - width]
        means.append(total / width)
    return means

for (int i = 0; i < n; ++i) {
  if (table[i].name == name) return &table[i];  // names are unique
}
return nullptr;

{"id": 4711, "name": "Lindqvist, Per", "orders": [{"item": "lamp", "count": 2, "price": 39.90}, {"item":
"cable", "count": 10, "price": 1.25}], "paid": true, "note": null}

Minutes of the meeting of the allotment society, 3 March. Present: Mrs Okafor (chair), Mr Lindqvist, Ms
Brandt, Mr Ito, Ms Duarte. Apologies: Mr Halloran. 1. The minutes of the last meeting were approved without
changes. 2. Mr Ito reported that the pump had been repaired and that it had cost 212 euros, 38 less than
expected. 3. Ms Brandt proposed that the hedge on the north side be cut before the birds begin to nest.
Agreed. 4. Ms Duarte asked who had painted the shed blue. Nobody had. 5. The next meeting will be on 7 April
at half past seven, in the back room of the Anchor.

- Will you take the night train or the early one?
- The early one. I never sleep on trains.
- You slept all the way from Lyon to Turin.
- That was not sleep. I had closed my eyes to think.
- You were thinking very loudly.

The law of 1874 required every parish to keep a register of wells. For each of them the depth had to be
written down, the year in which it was dug, the name of the owner, and whether the water was fit to drink.
Most parishes kept the register for a few years and then forgot it. In one of them, however, the sexton's
daughter continued it until 1931, long after the law had been repealed, and added remarks of her own:
"sweet, but low in August"; "a cat fell in, and was saved"; "the owner says eleven metres, I say nine". Her
register is today the best source that we have on the ground water of the whole district, and the geologist
who found it in a drawer named a layer of gravel after her.

Dear Sir or Madam, I am writing to complain about the kettle which I bought in your shop on the 14th of this
month. On the first day it boiled. On the second day it boiled and would not stop. On the third day it did
not boil, and has not boiled since. I enclose the receipt, number 88-20417, and should be glad of a new
kettle, or of the 24.95 that I paid for the old one. Yours faithfully, E. Brandt.

Name        Height (m)   First climbed   Remarks
Kaldhorn    2,104        1861            easy in summer, from the hut
Gray Tooth  1,987        1902            loose rock on the east side
Old Bishop  2,311        1847            snow until July
The Needle  1,755        1934            for experienced climbers only

A short history of the pencil. Before there were pencils, people drew lines with lead, and the name has
stayed although the lead has gone. In the sixteenth century a storm is said to have uprooted a tree in the
north of England and laid bare a black mineral that marked paper better than lead did. Shepherds used it to
mark their sheep; merchants wrapped it in string and sold it in the cities. Later it was cut into thin
sticks and laid between two halves of wood. When the mines began to fail, a French officer ground the
mineral to powder, mixed it with clay, and burned it like pottery. By changing the amount of clay he could
make it harder or softer, and so the same pencil that an architect uses for a plan, a child uses for a
dragon.

In the evening the wind turned to the east, and the stove began to smoke. Marta opened the windows, then the
doors, and at last she carried her chair out to the wall, where there was still some light. The cat, which
was gray and had a white foot, came along the wall, looked at her, looked at the open door, and went into
the pantry.

Frequently asked questions. How do I reset the device? Hold the button for ten seconds until the light turns
orange. Will I lose my recordings? No: recordings are kept on the card. Why does the light blink twice? The
battery is low. Why does it blink three times? The card is full. Why does it blink four times? We do not
know either; please write to us and say what you were doing.

Let n be an even number greater than 2, and suppose that n = 2m. If m is prime, then n = m + m is a sum of
two primes and we are done. Suppose therefore that m is not prime. For every k < m consider the pair m - k,
m + k, whose sum is n. We look for a k for which both are prime. That such a k exists has been checked for
every n up to a very large bound, and proved for none but these.
)sample";

}  // namespace longheads
