"""The words of miniworld: who and what there is, and which of them go together.

A word with two meanings (배, 사과, 차, 밤, 다리, 눈, 쓰다, 보다, 타다, 부르다, 오다, 드시다; wear, play, take, glasses)
is one entry a meaning, and the verb that takes it tells them apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeVar

Item = TypeVar("Item")


def no_type_check(item: Item) -> Item:
    """Marks what is called millions of times: mypy checks it, the tests do not check its types again at every call."""
    return item


FINAL_N, FINAL_R, FINAL_SS = 4, 8, 20  # places of ㄴ, ㄹ, ㅆ among the final consonants of a syllable


class Stem(NamedTuple):
    """The three forms from which Korean makes all others: 먹(지), 먹어(서), 먹으(면)."""

    plain: str
    infinitive: str
    open: str
    adjectival: bool = False

    @property
    def past(self) -> str:
        """먹었, 갔, 했: the infinitive closed by ㅆ."""
        return close(self.infinitive, FINAL_SS)

    @property
    def honored(self) -> Stem:
        """The same with -(으)시-, for what elders do."""
        return Stem(self.open + "시", self.open + "셔", self.open + "시", self.adjectival)


def close(syllables: str, final: int) -> str:
    """The same syllables with a final consonant under the last, which has none."""
    return syllables[:-1] + chr(ord(syllables[-1]) + final)


def stem(forms: str, adjectival: bool = False) -> Stem:
    """A stem from its forms, `_` standing for a space inside a form."""
    plain, infinitive, opened = (form.replace("_", " ") for form in forms.split())
    return Stem(plain, infinitive, opened, adjectival)


def third_person(verb: str) -> str:
    """The form with -s: goes, cries, watches, listens to."""
    first, space, rest = verb.partition(" ")
    if first == "have":
        form = "has"
    elif first.endswith(("s", "sh", "ch", "o")):
        form = first + "es"
    elif first.endswith("y") and first[-2] not in "aeiou":
        form = first[:-1] + "ies"
    else:
        form = first + "s"
    return form + space + rest


@dataclass(frozen=True, eq=False)
class Noun:
    """A person, animal or thing; `group` says which."""

    korean: str
    english: str
    group: str
    plural: str = ""
    """Empty when it cannot be counted; the same as `english` when it is always plural (shoes)."""
    counter: str = ""
    unit: str = ""
    """What is counted in English when the thing itself is not: two *glasses* of water."""
    object: str = ""
    possessive: str = ""
    agreement: str = "one"
    """The English verb form it takes: I, one or many."""
    again: str = ""
    """The English pronoun that takes up the name later in the sentence."""

    @property
    def countable(self) -> bool:
        """Whether there is a singular and another plural."""
        return bool(self.plural) and self.plural != self.english

    @property
    def owned(self) -> str:
        """The Korean word for belonging to this person."""
        return {"나": "내", "우리": "우리"}.get(self.korean, self.korean + "의")


@dataclass(frozen=True, eq=False)
class Adjective:
    """A quality, before a noun (`attribute`) or said of it (`stem`, unless it is only used before nouns)."""

    english: str
    attribute: str
    stem: Stem | None
    names: str
    said_of: str
    """What it can be said of, which may be more than what it can stand before."""

    @cached_property
    def nouns(self) -> tuple[Noun, ...]:
        """What can have this quality."""
        return nouns(self.names)


@dataclass(frozen=True, eq=False)
class Place:
    """A place, where something is done (`at`) or someone goes (`to`)."""

    korean: str
    at: str
    to: str


@dataclass(frozen=True, eq=False)
class Time:
    """A time; an English adverb of frequency stands before the verb, others at the end."""

    korean: str
    english: str
    frequency: bool = False


@dataclass(frozen=True, eq=False)
class Verb:
    """A verb or another predicate in both languages, and what it can be said of."""

    forms: str
    """English base, past and -ing form; `be` for qualities and the like."""
    stem: Stem
    who: str = "people"
    """Its subjects: groups or nouns."""
    what: str = ""
    """Its objects: groups or nouns."""
    where: str = ""
    when: str = "past progressive habit future want"
    """The tenses it is used in."""
    honor: str = ""
    """The Korean stem that elders get instead of -(으)시-, where there is one: 드시다, 주무시다."""
    humble: str = ""
    """The Korean stem for giving to elders: 드리다."""
    negative: Stem | None = None
    """The Korean opposite, where it is a word of its own: 없다, 아니다."""
    case: str = "을를"
    """The particle of its object."""
    place_case: str = "에서"
    article: str = "a"
    """The English article of an object without determiner: a, the, or `all` for all of its kind (likes apples)."""
    modifiers: str = "adno"
    """What its object may have: adjective, determiner, number, owner, partner (bread and milk)."""
    part: str = ""
    """A Korean word that belongs to the predicate: 배가 고프다."""
    part_english: str = ""
    """That word in English, where it is one: Minsu's *stomach* hurts, has big *eyes*."""
    complement: str = ""
    """What follows `be` or `have`: is *pretty*, has *big* eyes."""
    dummy: str = ""
    """The English subject where Korean has none: *it* rains, *there* is."""
    needs: str = ""
    """What it is never without: a place to go to, a recipient."""
    timeless: bool = False
    """It holds always, or at no time worth naming: is red, lives in Seoul."""
    shares_number: bool = False
    """The object is plural with the subject, to each their own: they are students, they wore hats."""

    @cached_property
    def english(self) -> tuple[str, str, str]:
        """Base, past and -ing form, each with its particle: listen to, listened to, listening to."""
        base, past, ing = (form.replace("_", " ") for form in self.forms.split())
        return base, past, ing

    @cached_property
    def honored(self) -> Stem:
        """The stem for what elders do."""
        return Stem(self.honor, self.honor[:-1] + "셔", self.honor) if self.honor else self.stem.honored

    @cached_property
    def subjects(self) -> tuple[Noun, ...]:
        """Who can do it."""
        return nouns(self.who)

    @cached_property
    def objects(self) -> tuple[Noun, ...]:
        """To whom or what it can be done."""
        return nouns(self.what)

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """Where it can be done, or lead."""
        return tuple(PLACES[name.replace("_", " ")] for name in self.where.split())

    @cached_property
    def tenses(self) -> tuple[str, ...]:
        """The tenses it is used in."""
        return tuple(self.when.split())


def _person(line: str, group: str) -> Noun:
    korean, english, object_form, possessive, agreement, again = (word.replace("_", " ") for word in line.split())
    return Noun(
        korean, english, group, object=object_form, possessive=possessive, agreement=agreement, again=again.strip("*")
    )


def _thing(line: str, group: str) -> Noun:
    korean, english, plural, counter = (word.replace("-", "") for word in line.split())
    counter, _, unit = counter.partition(":")
    agreement = "one" if english else "many"
    return Noun(korean, english or plural, group, plural, counter, unit, agreement=agreement)


PEOPLE = {
    "pronoun": """나 I me my I I / 우리 we us our many we / 그 he him his one he / 그녀 she her her one she
        그들 they them their many they""",
    "listener": "너 you you your many you",
    "name": """민수 Minsu Minsu Minsu's one he / 지영 Jiyeong Jiyeong Jiyeong's one she
        준호 Junho Junho Junho's one he / 수진 Sujin Sujin Sujin's one she
        지훈 Jihun Jihun Jihun's one he / 유나 Yuna Yuna Yuna's one she
        성민 Seongmin Seongmin Seongmin's one he / 은지 Eunji Eunji Eunji's one she""",
    "elder": """할머니 Grandma Grandma Grandma's one she / 할아버지 Grandpa Grandpa Grandpa's one he
        선생님 the_teacher the_teacher the_teacher's one *""",
}
THINGS = {
    "role": """의사 doctor doctors 명 / 학생 student students 명 / 가수 singer singers 명
        농부 farmer farmers 명 / 아이 child children 명 / 친구 friend friends 명""",
    "animal": "고양이 cat cats 마리 / 개 dog dogs 마리 / 새 bird birds 마리 / 말 horse horses 마리",
    "food": """사과 apple apples 개 / 배 pear pears 개 / 밤 chestnut chestnuts 개 / 달걀 egg eggs 개
        빵 bread - 조각:piece / 케이크 cake - 조각:piece / 고기 meat - -""",
    "drink": """물 water - 잔:glass / 우유 milk - 잔:glass / 주스 juice - 잔:glass / 커피 coffee - 잔:cup
        차 tea - 잔:cup""",
    "wear": """모자 hat hats 개 / 안경 - glasses 개:pair / 코트 coat coats 벌 / 셔츠 shirt shirts 벌
        신발 - shoes 켤레:pair""",
    "vehicle": """자전거 bicycle bicycles 대 / 차 car cars 대 / 버스 bus buses 대 / 기차 train trains 대
        배 ship ships 척""",
    "thing": """책 book books 권 / 편지 letter letters 통 / 영화 movie movies 편
        노래 song songs 곡 / 사진 picture pictures 장 / 문 door doors 개 / 창문 window windows 개
        가방 bag bags 개 / 우산 umbrella umbrellas 개 / 꽃 flower flowers 송이 / 나무 tree trees 그루
        선물 present presents 개 / 피아노 piano pianos 대 / 다리 bridge bridges 개
        길 street streets - / 사과 apology apologies -""",
    "idea": "축구 soccer - - / 농구 basketball - - / 한국어 Korean - - / 영어 English - - / 음악 music - -",
}


def _lines(table: dict[str, str]) -> list[tuple[str, str]]:
    return [(line, group) for group, text in table.items() for line in text.replace("\n", "/").split("/")]


NOUNS = {
    noun.english.removeprefix("the "): noun
    for noun in (
        *(_person(line, group) for line, group in _lines(PEOPLE)),
        *(_thing(line, group) for line, group in _lines(THINGS)),
    )
}
WHO = Noun("누구", "who", "question", object="who")
WHAT = Noun("무엇", "what", "question", object="what")


def nouns(names: str) -> tuple[Noun, ...]:
    """The nouns of some groups (`people` = all groups of people) and names."""
    found: list[Noun] = []
    for name in names.replace("people", "pronoun name elder role").split():
        members = [noun for noun in NOUNS.values() if noun.group == name]
        found += members or [NOUNS[name]]
    return tuple(found)


PLACES = {
    korean: Place(korean, at, to)
    for korean, at, to in (
        ("집", "at home", "home"),
        ("학교", "at school", "to school"),
        ("공원", "in the park", "to the park"),
        ("도서관", "in the library", "to the library"),
        ("시장", "at the market", "to the market"),
        ("식당", "at the restaurant", "to the restaurant"),
        ("병원", "at the hospital", "to the hospital"),
        ("해변", "at the beach", "to the beach"),
        ("부엌", "in the kitchen", "to the kitchen"),
        ("정원", "in the garden", "to the garden"),
        ("방", "in the room", "to the room"),
        ("서울", "in Seoul", "to Seoul"),
        ("부산", "in Busan", "to Busan"),
        ("책상 위", "on the desk", ""),
        ("나무 밑", "under the tree", ""),
    )
}
WHERE = Place("어디", "where", "where")
WHEN = Time("언제", "when")
MEANS = nouns("bus train bicycle ship car")

TIMES = {
    "past": (
        Time("어제", "yesterday"),
        Time("지난주에", "last week"),
        Time("오늘 아침에", "this morning"),
        Time("어젯밤에", "last night"),
    ),
    "future": (Time("내일", "tomorrow"), Time("다음 주에", "next week"), Time("오늘 밤에", "tonight")),
    "habit": (
        Time("매일", "every day"),
        Time("아침마다", "every morning"),
        Time("주말마다", "every weekend"),
        Time("자주", "often", frequency=True),
        Time("가끔", "sometimes", frequency=True),
        Time("항상", "always", frequency=True),
    ),
    "progressive": (Time("지금", "now"),),
}
NUMBERS = {1: ("한", "a"), 2: ("두", "two"), 3: ("세", "three"), 4: ("네", "four"), 5: ("다섯", "five")}
DETERMINERS = {"the": ("그", "the", "the"), "this": ("이", "this", "these"), "that": ("저", "that", "those")}


def _adjective(english: str, attribute: str, forms: str, names: str, also: str = "") -> Adjective:
    return Adjective(english, attribute, stem(forms, True) if forms else None, names, f"{names} {also}")


ADJECTIVES = (
    _adjective("big", "큰", "크 커 크", "dog horse bird tree bag window umbrella ship bridge flower apple"),
    _adjective("small", "작은", "작 작아 작으", "cat dog bird bag window hat umbrella flower"),
    _adjective("new", "새", "", "wear book bag umbrella bicycle car movie song piano"),
    _adjective("old", "오래된", "", "book letter bicycle car piano picture bridge movie song bag"),
    _adjective("red", "빨간", "빨갛 빨개 빨가", "apple flower hat bag umbrella shoes bicycle car coat"),
    _adjective("white", "하얀", "하얗 하얘 하야", "cat dog horse bird flower shirt shoes hat"),
    _adjective("black", "검은", "검 검어 검으", "cat dog horse bird coat bag umbrella"),
    _adjective("pretty", "예쁜", "예쁘 예뻐 예쁘", "flower bag hat shirt cat bird picture"),
    _adjective("expensive", "비싼", "비싸 비싸 비싸", "bag coat shoes glasses bicycle piano hat"),
    _adjective("warm", "따뜻한", "따뜻하 따뜻해 따뜻하", "bread milk coffee tea coat"),
    _adjective("cold", "차가운", "차갑 차가워 차가우", "water milk juice coffee"),
    _adjective("delicious", "맛있는", "맛있 맛있어 맛있으", "food coffee tea juice"),
    _adjective("interesting", "재미있는", "재미있 재미있어 재미있으", "book movie"),
    _adjective("sad", "슬픈", "슬프 슬퍼 슬프", "movie song letter book"),
    _adjective("long", "긴", "길 길어 기", "letter bridge movie song"),
    _adjective("fast", "빠른", "빠르 빨라 빠르", "horse car train ship bicycle"),
    _adjective("kind", "친절한", "친절하 친절해 친절하", "doctor student farmer singer friend", "name elder"),
)
